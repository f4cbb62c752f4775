# Worker run <<NAME>> of run <<RDZV_ID>>, slot <<SLOT>>: for `sh -s` on the slot's host.
#
# It comes over ssh's standard input, so that the join string is on no command line and no disk.
# The worker run is a session of its own and outlives the connection. Its id is its process and when
# that was started, so that no other process is ever taken for it. The scheduler reads the first and
# the last line of its log, ~/.local/state/rdzv/ssh/NAME.log: in a copy of this file (--worker-spec)
# leave these as they are.

host=<<HOST>>
log=$HOME/.local/state/rdzv/ssh/<<NAME>>.log

# Runs as `sh -c`, with the join string on standard input. Arguments: log, options, --, COMMAND.
worker='
log=$1; shift
trap "told=yes" HUP INT QUIT TERM # they are for rdzv, whose exit code is told at the end
read -r stat < /proc/$$/stat
started() { shift 19; echo $$-$1; }
line="rdzv: worker run $(started ${stat##*) })"
if (umask 077; set -C; : > "$log") 2> /dev/null; then
  echo "$line" | tee -a "$log" > /dev/null || { rm -f "$log"; exit 1; }
elif [ -e "$log" ]; then # it was submitted before, and that answer was lost
  tries=50
  until [ -s "$log" ] || [ $((tries = tries - 1)) -eq 0 ]; do sleep 0.1; done
  head -n 1 "$log"
  exit
else
  : >> "$log" # it says why not
  exit 1
fi
echo "$line"
exec 3<&0 < /dev/null >> "$log" 2>&1 # whoever submits it waits until here
export RDZV_JOIN_FILE=/proc/self/fd/3
[ -z "$told" ] && rdzv worker --parent $$ "$@"
code=$?
[ -z "$(tail -c 1 "$log")" ] || echo
echo "rdzv: worker run ended with exit code $code"
'

refuse() {
  echo "$host: $1" >&2
  exit 1
}

need() {
  command -v "$1" > /dev/null || refuse "its PATH is $PATH; $host: there is no command '$1' on it"
}

main() {
  # What is read from standard input by another shell than the one that was asked for is not run.
  [ "$1" = begun ] || refuse "a start-up file of the shell there replaces the shell"
  export PATH <<PASS_ENV>>
  # Of a command ssh makes no login: what a login would have put on the PATH is not there.
  PATH="$PATH:$HOME/.rdzv/command:/opt/rdzv/command:$HOME/.local/bin"
  need rdzv
  need setsid
  (umask 077 && mkdir -p "${log%/*}") || refuse "no place for the worker run's log"
  # The folder where `rdzv launch` was started, where this host has it too.
  folder=<<CWD>>
  export RDZV_LAUNCH_FOLDER="$folder"
  if [ -d "$folder" ]; then cd "$folder" || exit; fi
  said=$(echo <<RDZV_JOIN>> | setsid sh -c "$worker" rdzv "$log" <<WORKER_OPTIONS>> -- <<COMMAND>> &)
  [ -n "$said" ] || refuse "the worker run could not be started"
  printf '\n%s\n' "$said" # whatever else prints there: the ID begins a line
}
main "$@" # in one piece: nothing happens when the connection is cut before this line
