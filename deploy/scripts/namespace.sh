#!/bin/sh
# Creates the namespace, or sets the retention of an existing one, registers the search attributes
# by which runs are found, and returns when a worker can use it.
#   TEMPORAL_ADDRESS    host:port of the server
#   TEMPORAL_NAMESPACE  the namespace
#   RETENTION           how long a closed plan is kept, such as 720h
set -eu

# By address, not by name: in Compose networks Temporal's CLI may time out on a service name
# that every other client resolves (temporalio/samples-server, issue 136).
host=${TEMPORAL_ADDRESS%:*}
port=${TEMPORAL_ADDRESS##*:}
ip=$(getent ahostsv4 "$host" | awk '{ print $1; exit }')
TEMPORAL_ADDRESS=${ip:-$host}:$port
export TEMPORAL_ADDRESS

# Runs a command until it succeeds, at most 60 times and 1 s apart.
retry() {
  tries=60
  until answer=$("$@" 2>&1); do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
      echo "gave up after a minute: $*: $answer" >&2
      exit 1
    fi
    sleep 1
  done
}

# A server that listens may still be acquiring its shards.
retry temporal operator cluster health
if temporal operator namespace describe -n "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
  retry temporal operator namespace update -n "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
else
  temporal operator namespace create -n "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
fi
# A new namespace reaches all roles of the server some seconds later.
retry temporal workflow count -n "$TEMPORAL_NAMESPACE"
# As `acts setup` does; those that are there are left alone.
present=$(temporal operator search-attribute list -n "$TEMPORAL_NAMESPACE")
while read -r name type; do
  case $present in
    *"$name "*) ;;
    *) retry temporal operator search-attribute create -n "$TEMPORAL_NAMESPACE" --name "$name" --type "$type" ;;
  esac
done <<ATTRIBUTES
ActsPhase Keyword
ActsWaiting Int
ActsTools KeywordList
ActsModel Keyword
ActsCost Double
ActsRoot Keyword
ActsWaitingSince Datetime
ActsTags KeywordList
ATTRIBUTES
echo "Namespace $TEMPORAL_NAMESPACE keeps closed plans for $RETENTION"
