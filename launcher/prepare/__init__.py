"""Preparation of a launch: settings and COMMAND are checked, and nothing is made yet.

preparation       settings, COMMAND and environment -> what is launched; the dry run ends here
preview           the lines of a dry run
registry_process  what a registry's process is started with, and whether this machine can have one
"""
