"""`odradek run-class`: runs the command in place of a class of Kafka, as kafka-run-class.sh.

Classes moved between packages from version to version; their last names did not, so these decide.
"""

from __future__ import annotations

import click

from odradek.broker.errors import OdradekError

_PACKAGES = ("kafka.", "org.apache.kafka.", "org.apache.zookeeper.")
COMMANDS = {
    "AclCommand": "acls",
    "BrokerApiVersionsCommand": "broker-api-versions",
    "ClusterTool": "cluster",
    "ConfigCommand": "configs",
    "ConsoleConsumer": "console-consumer",
    "ConsoleProducer": "console-producer",
    "ConsumerGroupCommand": "consumer-groups",
    "ConsumerOffsetChecker": "consumer-offset-checker",
    "ConsumerPerformance": "consumer-perf-test",
    "DelegationTokenCommand": "delegation-tokens",
    "DeleteRecordsCommand": "delete-records",
    "DumpLogSegments": "dump-log",
    "GetOffsetShell": "get-offsets",
    "GroupsCommand": "groups",
    "Kafka": "start",
    "LeaderElectionCommand": "leader-election",
    "LogDirsCommand": "log-dirs",
    "ProducerPerformance": "producer-perf-test",
    "QuorumPeerMain": "zookeeper-server-start",
    "ReassignPartitionsCommand": "reassign-partitions",
    "ReplayLogProducer": "replay-log-producer",
    "ReplicaVerificationTool": "replica-verification",
    "SimpleConsumerShell": "simple-consumer-shell",
    "TopicCommand": "topics",
    "VerifiableConsumer": "verifiable-consumer",
    "VerifiableProducer": "verifiable-producer",
    "ZooKeeperMain": "zookeeper-shell",
    "ZooKeeperMainWithTlsSupportForKafka": "zookeeper-shell",
}


@click.command(
    "run-class",
    no_args_is_help=True,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: odradek run-class kafka.admin.TopicCommand --list --bootstrap-server localhost:9092",
)
@click.option("-name", "service", metavar="NAME", help="Ignored: there is no JVM that the name is for.")
@click.option("-loggc", is_flag=True, help="Ignored: there is no JVM whose collector could log.")
@click.argument("name", metavar="CLASS")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]…")
@click.pass_context
def command(ctx: click.Context, service: str | None, loggc: bool, name: str, words: tuple[str, ...]) -> None:
    """Run the command that does what a class of Kafka does, with the options of that class."""
    known = _command_name(name)
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    found = group.get_command(ctx, known)
    assert found is not None
    found.main(list(words), prog_name=f"odradek {known}", standalone_mode=False)


def _command_name(name: str) -> str:
    """The command for a class. Raises OdradekError."""
    known = COMMANDS.get(name.rpartition(".")[2])
    if known is None or not name.startswith(_PACKAGES):
        raise OdradekError(f"no command does what {name} does: odradek --help lists the commands")
    return known
