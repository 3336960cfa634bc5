// `tidewire load --profile` against the real servers, each started and ended by its test.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'

import { assertAll, folder, freePort, start } from '../interop/node/loads.js'
import { load } from '../interop/node/tidewire.js'

/** Whether these programs are there; otherwise the test is skipped. */
function has(test, packages, ...programs) {
  const missing = programs.filter((program) => spawnSync('which', [program]).status !== 0)
  if (missing.length > 0) test.skip(`${missing.join(', ')}: install ${packages}`)
  return missing.length === 0
}

/** Starts a program, and waits until it listens on the port. */
async function listening(test, port, command, env) {
  await start(test, command, () => listens(port), env)
}

async function listens(port) {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

test('Centrifugo: commands, and pings of the server every two seconds', async (t) => {
  if (!has(t, 'Go, https://go.dev/dl/', 'go')) return
  const [path, port] = [await folder(t), await freePort()]
  const module = 'github.com/centrifugal/centrifugo/v6@v6.9.1'
  const built = spawnSync('go', ['install', module], { env: { ...process.env, GOBIN: path }, encoding: 'utf8' })
  assert.equal(built.status, 0, built.stderr)
  const config = {
    client: { insecure: true, ping_interval: '2s', pong_timeout: '1s' },
    http_server: { address: '127.0.0.1', port },
  }
  await writeFile(join(path, 'config.json'), JSON.stringify(config))
  await listening(t, port, [join(path, 'centrifugo'), '-c', join(path, 'config.json')])
  const url = `ws://127.0.0.1:${port}/`
  const publish = ['--message', '"publish":{"channel":"a","data":{"n":{{seq}}}}']
  // Longer than the server waits for a pong.
  const result = await load(url, '--profile', 'centrifugo', ...publish, '-c', '20', '--messages-per-s', '10', '-d', '8s')
  assert.ok(result.requests.succeeded >= 1_000, JSON.stringify(result.requests))
  assertAll(result, result.requests.sent)
  assert.equal(result.connecting.ended, 0)
  const refused = await load(url, '--profile', 'centrifugo', '--message', '"rpc":{"method":"none"}', '-c', '1', '-n', '3')
  assert.deepEqual(refused.errors, { 'refused-by-server': 3 })
})

/** RabbitMQ with these plugins and settings. */
async function rabbit(t, port, plugins, settings) {
  const [path, mapper, node] = [await folder(t), await freePort(), await freePort()]
  // The daemon that RabbitMQ would start, and leave behind.
  await listening(t, mapper, ['epmd', '-port', `${mapper}`, '-address', '127.0.0.1'])
  await writeFile(join(path, 'plugins'), `[${plugins.join(',')}].`)
  await writeFile(join(path, 'rabbitmq.conf'), [`listeners.tcp.1 = 127.0.0.1:${node}`, ...settings, ''].join('\n'))
  const server = '/usr/lib/rabbitmq/bin/rabbitmq-server'
  await listening(t, port, [server], {
    ...{ HOME: path, ERL_EPMD_PORT: `${mapper}`, ERL_EPMD_ADDRESS: '127.0.0.1', RABBITMQ_NODENAME: 'tidewire@localhost' },
    ...{ RABBITMQ_DIST_PORT: `${await freePort()}`, RABBITMQ_MNESIA_BASE: path, RABBITMQ_LOG_BASE: path },
    ...{ RABBITMQ_ENABLED_PLUGINS_FILE: join(path, 'plugins'), RABBITMQ_CONFIG_FILE: join(path, 'rabbitmq.conf') },
    ...{ RABBITMQ_PID_FILE: join(path, 'pid'), RABBITMQ_SCHEMA_DIR: join(path, 'schema') },
  })
}

test('RabbitMQ over STOMP: every message has its receipt, and a wrong password is told', async (t) => {
  if (!has(t, 'rabbitmq-server', '/usr/lib/rabbitmq/bin/rabbitmq-server', 'epmd')) return
  const port = await freePort()
  const settings = [`web_stomp.tcp.listener = 127.0.0.1:${port}`, `stomp.listeners.tcp.1 = 127.0.0.1:${await freePort()}`]
  await rabbit(t, port, ['rabbitmq_web_stomp'], settings)
  const url = `ws://127.0.0.1:${port}/`
  const login = ['--set', 'login=guest', '--set', 'passcode=guest']
  assertAll(await load(url, '--profile', 'stomp', ...login, '-c', '5', '-n', '500'), 500)
  const wrong = await load(url, '--profile', 'stomp', '--set', 'login=guest', '--set', 'passcode=wrong', '-c', '1', '-n', '1')
  assert.equal(wrong.requests.succeeded ?? 0, 0)
  assert.match(JSON.stringify(wrong.notes), /Bad CONNECT/)
})

test('RabbitMQ over MQTT: every message has its PUBACK', async (t) => {
  if (!has(t, 'rabbitmq-server', '/usr/lib/rabbitmq/bin/rabbitmq-server', 'epmd')) return
  const port = await freePort()
  const settings = [`web_mqtt.tcp.listener = 127.0.0.1:${port}`, `mqtt.listeners.tcp.1 = 127.0.0.1:${await freePort()}`]
  await rabbit(t, port, ['rabbitmq_web_mqtt'], settings)
  const url = `ws://127.0.0.1:${port}/ws`
  assertAll(await load(url, '--profile', 'mqtt', '-c', '5', '-n', '500'), 500)
})

test('Action Cable: messages through its pings, and a channel that rejects', async (t) => {
  if (!has(t, 'ruby-actioncable ruby-actionpack ruby-railties puma', 'puma')) return
  const port = await freePort()
  const app = new URL('action_cable.ru', import.meta.url).pathname
  await listening(t, port, ['puma', '-b', `tcp://127.0.0.1:${port}`, '-t', '4:4', app], { RAILS_ENV: 'production' })
  const url = `ws://127.0.0.1:${port}/`
  assertAll(await load(url, '--profile', 'action-cable', '-c', '5', '-n', '100'), 100)
  // The server sends a ping every three seconds.
  const reply = ['--reply', 'regex:seq[^0-9]*([0-9]+)']
  const result = await load(url, '--profile', 'action-cable', ...reply, '-c', '5', '--messages-per-s', '10', '-d', '5s')
  assertAll(result, result.requests.sent)
  assert.equal(result.connecting.ended, 0)
  const closed = await load(url, '--profile', 'action-cable', '--set', 'channel=NoChannel', '-c', '1', '-n', '1')
  assert.equal(closed.requests.succeeded ?? 0, 0)
})
