"""The parts of a launch: its settings and COMMAND, and the outer world that it acts on.

preparation       settings, COMMAND and environment -> what is launched; the dry run ends here
preview           the lines of a dry run
context           one launch as its registry and its worker runs know it: place, keys, plan
environment       the outer world of a launch, which the simulator replaces
registry_process  what a registry's process is started with, and whether this machine can have one
"""
