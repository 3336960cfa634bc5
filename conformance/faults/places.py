"""Where the broker is behind something: sentinels that name the master, or a cluster whose slot moves.

Each has what a run needs of a Redis: `url`, `client()` of the master of the moment for a slot, `start()`, `kill()`, and `break_it()`,
the fault that only it can have.
"""

import asyncio
import contextlib

import redis.asyncio
import redis.exceptions
from processes import Program, Redis, free_port, until

MASTER = "main"
# That of `{0}`, the first partition: the first one of the second node.
SLOT = 13907


class Sentinel(Program):
    """A sentinel that replaces a master after two seconds of silence: a busy machine is silent for half a second."""

    def __init__(self, folder, master_port):
        super().__init__(folder / "sentinel.log")
        self.port = free_port()
        self.file = folder / "sentinel.conf"
        self.file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {master_port} 1\n"
            f"sentinel down-after-milliseconds {MASTER} 2000\n"
            f"sentinel failover-timeout {MASTER} 2000\n"
        )

    async def start(self):
        await self.spawn("redis-server", self.file, "--sentinel")
        await until(self.knows_replica, "the sentinel to find the replica")

    async def ask(self, *command):
        client = redis.asyncio.Redis(port=self.port, socket_timeout=5)
        try:
            return await client.execute_command(*command)
        except (redis.exceptions.RedisError, OSError):
            return None
        finally:
            await client.aclose()

    async def knows_replica(self):
        return bool(await self.ask("SENTINEL", "REPLICAS", MASTER))

    async def master_port(self):
        address = await self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(address[1]) if address else None


class Replicated:
    """A master, its replica, and a sentinel. The replica lags when it takes the master's place."""

    def __init__(self, folder, durability, _slots):
        self.nodes = [Redis(folder, durability), Redis(folder, durability)]
        self.sentinel = Sentinel(folder, self.nodes[0].port)
        self.master = 0

    @property
    def url(self):
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/{MASTER}"

    def client(self, _slot=SLOT):
        return self.nodes[self.master].client()

    async def start(self):
        for node in self.nodes:
            await node.start()
        await self.follow(1)
        await self.sentinel.start()

    async def follow(self, replica):
        """Makes a node the replica of the other one, and waits until it has all data."""
        client = self.nodes[replica].client()
        await client.execute_command("REPLICAOF", "127.0.0.1", self.nodes[1 - replica].port)
        await until(lambda: self.is_in_step(client), "the replica")
        await client.aclose()

    async def is_in_step(self, client):
        return (await self.replication(client)).get("master_link_status") == "up"

    async def replication(self, client):
        """What a node says of its replication, or nothing if it does not answer."""
        try:
            return await client.info("replication")
        except (redis.exceptions.RedisError, OSError):
            return {}

    async def break_it(self, draw):
        await draw.choice([self.kill_master, self.kill_master, self.fail_over_on_request])(draw)
        await until(self.has_settled, "the sentinel to have a master and a replica")

    async def fail_over_on_request(self, _draw):
        """As an operator does it: the old master lives, and takes writes until the sentinel makes it a replica."""
        replica = self.nodes[1 - self.master]

        async def is_done():
            if await self.names(replica):
                return True
            # Refused while a failover goes on, which ends without success when the machine is slow.
            await self.sentinel.ask("SENTINEL", "FAILOVER", MASTER)
            await asyncio.sleep(0.5)
            return False

        await until(is_done, "the sentinel to fail over")

    async def names(self, node):
        return await self.sentinel.master_port() == node.port

    async def kill_master(self, draw):
        """Kills the master while the replica lags; the sentinel names the replica. The old master becomes its replica.

        The old master is a replica from its start. An order after its start could come too late: the sentinel may have
        made it the master again, and would see only after half a minute that its master is a replica.
        """
        old, new = self.nodes[self.master], self.nodes[1 - self.master]
        await new.pause_while(asyncio.sleep(draw.uniform(0, 0.3)), old.kill)
        await until(lambda: self.names(new), "the sentinel to name the replica")
        await old.start("--replicaof", "127.0.0.1", new.port)

    async def has_settled(self):
        """Whether the one that the sentinel names is a master, and the other one its replica with all data."""
        port = await self.sentinel.master_port()
        self.master = next((n for n, node in enumerate(self.nodes) if node.port == port), self.master)
        master, replica = (self.nodes[n].client() for n in (self.master, 1 - self.master))
        async with contextlib.aclosing(master), contextlib.aclosing(replica):
            return (
                (await self.replication(master)).get("role") == "master"
                and await self.is_in_step(replica)
                and await self.sentinel.knows_replica()
            )

    async def kill(self):
        for program in (self.sentinel, *self.nodes):
            await program.kill()


class Slotted:
    """Two masters of a Redis Cluster; the slots of the partitions move from one to the other and back."""

    def __init__(self, folder, durability, slots):
        self.nodes = [Redis(folder, durability, self.flags()), Redis(folder, durability, self.flags())]
        # The node of each.
        self.owners = {slot: int(slot >= SLOT) for slot in slots}

    @staticmethod
    def flags():
        return ["--cluster-enabled", "yes", "--cluster-node-timeout", 2000, "--cluster-port", free_port()]

    @property
    def url(self):
        ports = [node.port for node in self.nodes]
        return f"redis+cluster://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"

    def client(self, slot=SLOT):
        return self.nodes[self.owners[slot]].client()

    async def tell(self, node, *command):
        client = self.nodes[node].client()
        try:
            return await client.execute_command(*command)
        finally:
            await client.aclose()

    async def start(self):
        for node in self.nodes:
            await node.start()
        await self.tell(0, "CLUSTER", "ADDSLOTSRANGE", 0, SLOT - 1)
        await self.tell(1, "CLUSTER", "ADDSLOTSRANGE", SLOT, 16383)
        other = self.nodes[1]
        await self.tell(0, "CLUSTER", "MEET", "127.0.0.1", other.port, other.flags[-1])
        for node in range(2):
            await until(lambda n=node: self.serves(n), "the cluster")

    async def serves(self, node):
        info = await self.tell(node, "CLUSTER", "INFO")
        return b"cluster_state:ok" in (info if isinstance(info, bytes) else str(info).encode())

    async def break_it(self, draw):
        """Moves a slot with all its keys, some at a time."""
        slot = draw.choice(sorted(self.owners))
        old, new = self.owners[slot], 1 - self.owners[slot]
        ids = [(await self.tell(node, "CLUSTER", "MYID")).decode() for node in range(2)]
        await self.tell(new, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old])
        await self.tell(old, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new])
        while keys := await self.tell(old, "CLUSTER", "GETKEYSINSLOT", slot, 3):
            port = self.nodes[new].port
            await self.tell(old, "MIGRATE", "127.0.0.1", port, "", 0, 5000, "REPLACE", "KEYS", *keys)
            await asyncio.sleep(draw.uniform(0, 0.01))
        # The new owner first: it then tells the other one.
        for node in (new, old):
            await self.tell(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[new])
        self.owners[slot] = new

    async def kill(self):
        for node in self.nodes:
            await node.kill()
