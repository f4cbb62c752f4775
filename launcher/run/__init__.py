"""The live launch: pure machines that decide, and a shell that acts for them.

preparation     settings, COMMAND and environment -> what is launched; the dry run ends here
ground          what a former launch left -> a new launch, or the former one taken up again
machine         one launch: the registry, the run, its worker runs, signals, the verdict
  slots           which worker runs are submitted, taken up again and described
  ending          the end of one worker run; also for `rdzv cancel`
  registry_child  when the registry's process is started again
shell, effects  carry out what the machine decides; `environment` is their outer world
words           the sentences, made last from the machine's values
"""
