#!/bin/bash
# The runs of one call of a campaign, on this host's GPUs or on simulated ones, as root:
#
#   bench/replay/campaign.sh OUT bench/replay/headline.txt --budget-s 1700 --trace philly_t1.csv --compress 150
#
# `--help` shows the rest; what the host must have stands in run.sh.
export REPLAY_PROGRAM=campaign REPLAY_BEGAN_S=${REPLAY_BEGAN_S:-$(date +%s)}
exec "$(dirname "$0")/run.sh" "$@"
