"""The faults that a run draws from. Each is a coroutine that takes the cluster and a source of random numbers."""

import asyncio
import signal

import redis.exceptions
from processes import Redis, until

LEASE_S = 10


async def kill_server(cluster, draw):
    server = draw.choice(cluster.free_servers)
    await server.kill()
    await asyncio.sleep(draw.uniform(0, 1))
    await server.start()


async def restart_server(cluster, draw):
    server = draw.choice(cluster.free_servers)
    await server.kill(signal.SIGTERM)
    await server.start()


async def pause_server(cluster, draw):
    await draw.choice(cluster.free_servers).pause(draw.uniform(0.1, 4))


async def outlive_lease(cluster):
    """The server `asleep` stops for longer than its lease lasts, and comes back: meanwhile the others have taken out its
    users and have its work. The other faults go on without it."""
    server = cluster.asleep
    await server.pause(LEASE_S + 2)
    try:
        await until(server.has_lost_lease, f"server {server.number} finds that its lease has ended")
    except SystemExit as late:
        cluster.wrong.append(str(late))
    cluster.asleep = None


async def kill_redis(cluster, draw):
    await cluster.redis.kill()
    await asyncio.sleep(draw.uniform(0, 1))
    await cluster.redis.start()


async def pause_redis(cluster, draw):
    await cluster.redis.pause(draw.uniform(0.1, 6))


async def delay(cluster, draw):
    proxy = draw.choice(cluster.proxies)
    proxy.delay_s = draw.uniform(0.001, 0.3)
    await asyncio.sleep(draw.uniform(0.5, 3))
    proxy.heal()


async def cut(cluster, draw):
    draw.choice(cluster.proxies).cut()


async def partition(cluster, draw):
    """One server talks to Redis and hears nothing, and Redis hears nothing of it."""
    number = cluster.servers.index(draw.choice(cluster.free_servers))
    proxy, server, seconds = cluster.proxies[number], cluster.servers[number], draw.uniform(0.5, 6)
    proxy.is_deaf = True
    await asyncio.sleep(seconds)
    # The probe of each second has 3 s to come back.
    if seconds > 5 and await server.is_ready():
        cluster.wrong.append(f"server {number} is ready, cut off for {seconds:.1f} s")
    proxy.heal()


async def refuse(cluster, draw):
    proxy = draw.choice(cluster.proxies)
    proxy.is_closed = True
    proxy.cut()
    await asyncio.sleep(draw.uniform(0.1, 3))
    proxy.heal()


async def command(cluster, draw):
    """A command of an operator who should have known better."""
    line = draw.choice(
        [
            ("CLIENT", "KILL", "TYPE", "pubsub"),
            ("CLIENT", "KILL", "TYPE", "normal"),
            ("CLIENT", "PAUSE", draw.randrange(100, 4000)),
            ("SCRIPT", "FLUSH"),
            ("DEBUG", "SLEEP", round(draw.uniform(0.1, 2), 2)),
        ]
    )
    await cluster.ask_redis(*line)


async def out_of_memory(cluster, draw):
    await cluster.ask_redis("CONFIG", "SET", "maxmemory", "1mb")
    await asyncio.sleep(draw.uniform(0.2, 3))
    await cluster.ask_redis("CONFIG", "SET", "maxmemory", "0")


async def flush(cluster, draw):
    """Redis forgets everything."""
    await cluster.ask_redis("FLUSHALL")


async def fail_over(cluster, draw):
    """A replica that lags takes the place of its master: what it had not read yet is lost."""
    replica = Redis(cluster.folder, cluster.redis.durability)
    await replica.start()
    client = replica.client()
    await client.execute_command("REPLICAOF", "127.0.0.1", cluster.redis.port)
    end = asyncio.get_running_loop().time() + 20
    while (await client.info("replication")).get("master_link_status") != "up":
        if asyncio.get_running_loop().time() > end:
            await client.aclose()
            await replica.kill()  # Other faults kept it from its master.
            return
        await asyncio.sleep(0.05)
    await replica.pause_while(asyncio.sleep(draw.uniform(0, 0.5)), cluster.redis.kill)
    await client.execute_command("REPLICAOF", "NO", "ONE")
    await client.aclose()
    cluster.redis = replica
    for proxy in cluster.proxies:
        proxy.target = replica.port
        proxy.cut()


async def move_broker(cluster, draw):
    """The broker goes to another process by a failover."""
    await cluster.place.break_it(draw)


async def move_slot(cluster, draw):
    """The slot of a partition moves; before that all servers have looked where the masters are, which they do every 2 s."""
    await cluster.all_ready()
    await asyncio.sleep(2.5)
    await cluster.place.break_it(draw)


async def move_clients(cluster, draw):
    for client in draw.sample(cluster.clients, len(cluster.clients) // 2):
        client.hop()


# Faults that concern the servers and their clients alone.
OF_SERVERS = [kill_server, kill_server, restart_server, pause_server, move_clients]
# Faults that Redis survives with all its data, if it writes to disk before it answers.
GENTLE = [
    kill_redis, kill_redis, pause_redis, delay, cut, partition, refuse, command, out_of_memory,
]  # fmt: skip
# Faults that make it lose data.
HARSH = [flush, fail_over]

IGNORED = (redis.exceptions.RedisError, OSError)
