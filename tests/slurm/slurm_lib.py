"""A Slurm that belongs to a test: Debian's munge, slurmctld and a slurmd on each of the test's hosts
(tests/hosts/hosts_lib.py), which end with the test. The controller runs on h1.

    from slurm_lib import slurm      # an idle Slurm; hosts_train, imported after it, has its hosts
    job = slurm.submit("-N", "3", "script.sh")"""
import os, re, shutil, signal, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../hosts")
os.environ["PATH"] += ":/usr/sbin:/sbin"
from hosts_lib import skip

for program in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol"):
    if not shutil.which(program):
        skip(f"there is no {program}: packages munge, slurmctld, slurmd and slurm-client")
from hosts_lib import SHARED, call, cases, until
from hosts_train import hosts  # hosts on which nothing runs yet
from train_lib import check, steps

# Jobs in `low` make room for those in `high`: they have 20 s to end, and are then put back into the queue.
# Credentials between daemons expire after 5 s, because longer ones delay a job that runs again. The numbers of
# this machine's CPUs do not matter.
CONF = """
ClusterName=test
SlurmctldHost=h1
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/munge.sock,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
KillWait=20
NodeName=h[1-{n}] CPUs=4 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=20 MaxTime=10 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=10 State=UP
"""


class Slurm:
    def __init__(self, hosts):
        self.hosts, self.dir = hosts, f"{SHARED}/slurm"
        os.makedirs(f"{self.dir}/state")
        with open(f"{self.dir}/munge.key", "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(f"{self.dir}/munge.key", 0o600)
        with open(f"{self.dir}/slurm.conf", "w") as f:
            f.write(CONF.format(dir=self.dir, n=len(hosts.names)))
        with open(f"{self.dir}/cgroup.conf", "w") as f:
            f.write("CgroupPlugin=cgroup/v1\n")  # no part of cgroups is used, and the machine may have none
        os.environ["SLURM_CONF"] = f"{self.dir}/slurm.conf"
        del os.environ["OMPI_MCA_plm_rsh_agent"]  # Open MPI uses srun here
        files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        call("munged", "--force", "--num-threads=2", "--origin=127.0.0.1",
             *(f"--{option}={self.dir}/munge.{name}" for option, name in files.items()))
        self.start_controller()
        for name in hosts.names:
            os.mkdir(f"{self.dir}/spool.{name}")
            self.daemon(name, "slurmd", "-D", "-N", name)
        until(lambda: self.ask("sinfo", "-h", "-N", "-p", "low", "-o", "%T").split() == ["idle"] * len(hosts.names),
              "idle nodes")

    def daemon(self, host, *command):
        log = open(f"{self.dir}/{command[0]}.{host}.log", "a")
        return self.hosts.start(host, command, stdout=log, stderr=subprocess.STDOUT)

    def start_controller(self):
        self.controller = self.daemon("h1", "slurmctld", "-D")
        until(lambda: "UP" in self.ask("scontrol", "ping"), "the controller")

    def stop_controller(self):
        os.kill(self.hosts.pid(self.controller), signal.SIGTERM)
        self.controller.wait()

    def ask(self, *command):
        """Returns the output of a program of Slurm; "" if it fails."""
        return subprocess.run(self.hosts.enter_command("h1", command), capture_output=True, text=True).stdout

    def submit(self, *args):
        """Submits a job and returns its number."""
        said = self.hosts.run("h1", ["sbatch", "--parsable", *args], capture_output=True, text=True)
        return said.stdout.strip()

    def show(self, job, key):
        """Returns the value of JobState, Restarts or another key of the job."""
        time.sleep(0.05)  # other tests use the cores, too
        found = re.search(rf"\b{key}=(\S*)", self.ask("scontrol", "show", "job", job))
        return found[1] if found else ""

    def wait(self, job, *states):
        """Waits until the job is in one of the states."""
        ended = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT")
        found = until(lambda: (now := self.show(job, "JobState")) in (*states, *ended) and now, f"job {job}")
        check(found in states, f"job {job} is {found}: {self.ask('scontrol', 'show', 'job', job)}")


def text(log):
    with open(log) as f:
        return f.read()


def newest():
    """Returns the newest step in ckpt; 0 if there is none."""
    return max(steps(), default=0)


slurm = Slurm(hosts)
