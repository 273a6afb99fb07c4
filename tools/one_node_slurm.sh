#!/usr/bin/env bash
# A real Slurm on this machine, for tests: one node with eight stand-in GPUs that really runs jobs
# (partition "local", the default), and 128 nodes that exist on paper, for `sbatch --test-only`
# (partition "cloud").
#
#   tools/one_node_slurm.sh start     idempotent; prints the path of slurm.conf (export it as SLURM_CONF)
#   tools/one_node_slurm.sh stop      ends the daemons by the ids in their pid files
#
# Needs root and the Debian packages slurm-wlm and munge. Everything lives in $ONE_NODE_SLURM; nothing
# of a Slurm or munge that the machine has already is read or changed.
set -euo pipefail

ROOT=${ONE_NODE_SLURM:-${TMPDIR:-/tmp}/one-node-slurm} # short: munge limits the length of its socket path
CONF=$ROOT/slurm.conf
HOST=$(hostname -s)
export SLURM_CONF=$CONF
PATH=$PATH:/usr/sbin:/sbin

pid_of() { # pid file, program: prints the pid where that process runs and is that program
    local pid
    pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && ! gone "$pid" "$2" && echo "$pid"
}

wait_for() { # seconds, command...
    local left=$(($1 * 5))
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || { echo "gave up waiting for: $*; see $ROOT/*.log" >&2; return 1; }
        sleep 0.2
    done
}

configure() {
    mkdir -p "$ROOT"/{state,spool}
    chmod 755 "$ROOT"
    [ -s "$ROOT/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom >"$ROOT/munge.key")
    # Eight terminals stand in for GPUs; where there are none, empty files do, which jobs are not shown
    # as CUDA_VISIBLE_DEVICES.
    local devices="/dev/tty[0-7]"
    if ! [ -c /dev/tty0 ] || ! [ -c /dev/tty7 ]; then
        touch "$ROOT"/gpu{0..7}
        devices="$ROOT/gpu[0-7]"
    fi
    echo "NodeName=$HOST Name=gpu File=$devices" >"$ROOT/gres.conf"
    cat >"$CONF" <<CONF
ClusterName=one
SlurmctldHost=$HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$ROOT/munge.socket
CredType=cred/munge
SlurmctldPort=${ONE_NODE_SLURM_PORT:-16817}
SlurmdPort=$((${ONE_NODE_SLURM_PORT:-16817} + 1))
SlurmctldPidFile=$ROOT/slurmctld.pid
SlurmdPidFile=$ROOT/slurmd.pid
SlurmctldLogFile=$ROOT/slurmctld.log
SlurmdLogFile=$ROOT/slurmd.log
StateSaveLocation=$ROOT/state
SlurmdSpoolDir=$ROOT/spool
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
GresTypes=gpu
KillWait=2
ReturnToService=2
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60
SuspendExcNodes=$HOST
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 Gres=gpu:8 State=UNKNOWN
NodeName=n[1-128] CPUs=64 RealMemory=1000 Gres=gpu:8 State=CLOUD
PartitionName=local Nodes=$HOST Default=YES MaxTime=INFINITE State=UP
PartitionName=cloud Nodes=n[1-128] MaxTime=INFINITE State=UP
CONF
}

start() {
    [ "$(id -u)" = 0 ] || { echo "a one-node Slurm is started as root" >&2; exit 1; }
    local program
    for program in munged slurmctld slurmd sbatch; do
        command -v "$program" >/dev/null ||
            { echo "$program is missing: apt-get install slurm-wlm munge" >&2; exit 1; }
    done
    if ! pid_of "$ROOT/slurmctld.pid" slurmctld >/dev/null || ! pid_of "$ROOT/slurmd.pid" slurmd >/dev/null; then
        stop
        configure
        munged --force --key-file="$ROOT/munge.key" --socket="$ROOT/munge.socket" \
            --pid-file="$ROOT/munged.pid" --log-file="$ROOT/munged.log" --seed-file="$ROOT/munged.seed"
        slurmctld -c -f "$CONF"
        slurmd -f "$CONF" -N "$HOST"
    fi
    wait_for 60 scontrol ping
    wait_for 30 node_up
    echo "$CONF"
}

node_up() {
    [ "$(sinfo -h -p local -o %t)" = idle ] || [ "$(sinfo -h -p local -o %t)" = mix ] ||
        { scontrol update nodename="$HOST" state=resume; return 1; }
}

stop() {
    local program pid
    for program in slurmd slurmctld munged; do
        if pid=$(pid_of "$ROOT/$program.pid" "$program"); then
            kill "$pid" 2>/dev/null || true
            # A daemon removes its pid file before it has ended: what counts is the process.
            wait_for 10 gone "$pid" "$program" || kill -KILL "$pid" 2>/dev/null || true
        fi
        rm -f "$ROOT/$program.pid"
    done
}

gone() { # pid, program
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" != "$2" ]
}

case ${1:-} in
    start) start ;;
    stop) stop ;;
    *) echo "usage: $0 start|stop" >&2; exit 2 ;;
esac
