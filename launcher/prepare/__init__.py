"""What a launch is made of: settings and COMMAND are checked, and nothing is made yet.

preparation       settings, COMMAND and environment -> what is launched; the dry run ends here
preview           the lines of a dry run
context           one launch as its registry and its worker runs know it: place, keys, plan
environment       the outer world of a launch, which the simulator replaces
registry_process  what a registry's process is started with, and whether this machine can have one
"""
