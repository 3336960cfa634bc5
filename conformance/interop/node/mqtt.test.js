// MQTT over WebSocket: brokers that others wrote, and a server that cuts its packets as no broker does every time.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Aedes } from 'aedes'
import { generate, parser } from 'mqtt-packet'
import { createWebSocketStream, WebSocket, WebSocketServer } from 'ws'

import { assertAll, file, folder, freePort, listen, start, told } from './loads.js'
import { load } from './tidewire.js'

const places = [...(process.env.PATH ?? '').split(':'), '/usr/local/sbin', '/usr/sbin', '/opt/homebrew/sbin']
const mosquitto = places.map((folder) => join(folder, 'mosquitto')).find(existsSync)

/** Aedes behind a WebSocket. */
async function aedes(test, options = {}) {
  const { http, url } = await listen(test)
  const broker = await Aedes.createBroker(options)
  test.after(() => broker.close())
  const sockets = new WebSocketServer({ server: http, path: '/mqtt' })
  sockets.on('connection', (socket, request) => broker.handle(createWebSocketStream(socket), request))
  const published = []
  broker.on('publish', ({ topic, payload }, client) => {
    if (client) published.push({ topic, payload: payload.toString() })
  })
  return { url, broker, published }
}

test('aedes: every message is confirmed, and the broker has it', async (t) => {
  const { url, broker, published } = await aedes(t)
  const clients = []
  broker.on('client', (client) => clients.push(client.id))
  const flags = ['--set', 'topic=rooms/{{user}}', '--message', '{"n":{{seq}}}']
  assertAll(await load(url, '--profile', 'mqtt', '-c', '4', '-p', '5', '-n', '200', ...flags), 200)
  assert.equal(published.length, 200)
  assert.equal(new Set(published.map(({ payload }) => JSON.parse(payload).n)).size, 200)
  assert.deepEqual([...new Set(published.map(({ topic }) => topic))].sort(), [0, 1, 2, 3].map((user) => `rooms/${user}`))
  assert.equal(new Set(clients).size, 4)
  for (const id of clients) assert.match(id, /^[0-9a-zA-Z]{1,23}$/)
})

test('aedes: subscribers receive what others publish, with its age', async (t) => {
  const { url } = await aedes(t)
  // A topic of 100 bytes: packets have lengths of one byte and of two.
  for (const topic of ['sensors/a', `sensors/{{{${'x'.repeat(100)}`.replace('{{{', "{{'{{'}}{")]) {
    const flags = ['--subscribe', 'sensors/#', '--set', `topic=${topic}`, '--timestamp-field', '/at']
    const result = await load(url, '--profile', 'mqtt', '-c', '3', '-n', '60', ...flags)
    assertAll(result, 60)
    assert.ok(result.received.messages > 60, told(result))
    assert.ok(result.message_age_us.count > 0, JSON.stringify(result.message_age_us))
  }
})

test('aedes: a refused login is told with its reason, and no password', async (t) => {
  const authenticate = (client, name, password, done) => {
    const isRight = name === 'me' && password?.toString() === 'right'
    done(isRight ? null : Object.assign(new Error('no'), { returnCode: name === 'me' ? 4 : 5 }), isRight)
  }
  const { url } = await aedes(t, { authenticate })
  const login = (name, password) => ['--profile', 'mqtt', '-c', '2', '-n', '10', '--set', `username=${name}`, '--set', `password=${password}`]
  assertAll(await load(url, ...login('me', 'right')), 10)
  for (const [name, reason] of [['me', 'bad user name or password (0x04)'], ['you', 'not authorized (0x05)']]) {
    const result = await load(url, ...login(name, 'wrong-secret'))
    assert.ok(result.notes.some((note) => note.includes(`2 × \`${reason}\``)), told(result))
    assert.ok(!JSON.stringify(result).includes('wrong-secret'))
  }
})

test('aedes: idle connections send pings in time', async (t) => {
  const { url, broker } = await aedes(t)
  const [alive, timedOut] = [new Set(), new Set()]
  broker.on('ping', (_, client) => alive.add(client.id))
  broker.on('keepaliveTimeout', (client) => timedOut.add(client.id))
  const idle = (ping) => ['--profile', 'mqtt', '-c', '2', '--messages-per-s', '0', '-d', '5s', '--set', 'keep_alive=2', '--set', `ping=${ping}`]
  await Promise.all([load(url, ...idle('300ms')), load(url, ...idle('0s'))])
  assert.deepEqual([alive.size, timedOut.size], [2, 2])
  assert.deepEqual([...alive].filter((id) => timedOut.has(id)), [], 'without pings the broker closes')
})

/** Mosquitto on a free port, with these lines in its file; it ends with the test. */
async function broker(test, lines, files = {}) {
  const [path, port] = [await folder(test), await freePort()]
  for (const [name, text] of Object.entries(files)) await writeFile(join(path, name), text)
  if (files.passwords) spawnSync(`${mosquitto}_passwd`.replace('/sbin/', '/bin/'), ['-U', join(path, 'passwords')])
  // It does not become another user, who could not read the folder; and version 2.0.11 needs a listener without WebSocket.
  const all = ['listener 0 FOLDER/plain', `listener ${port} 127.0.0.1`, 'protocol websockets', 'persistence false', 'user root', ...lines]
  await writeFile(join(path, 'conf'), `${all.join('\n').replaceAll('FOLDER', path)}\n`)
  await start(test, [mosquitto, '-c', join(path, 'conf')], () => accepts(port))
  return `ws://127.0.0.1:${port}/`
}

async function accepts(port) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/mqtt`, 'mqtt')
  const isOpen = await Promise.race([once(socket, 'open'), once(socket, 'error')]).then(() => socket.readyState === WebSocket.OPEN, () => false)
  socket.terminate()
  return isOpen
}

/** The payloads of a topic as another client receives them at QoS 1. */
async function observe(test, url, topic) {
  const socket = new WebSocket(`${url}mqtt`, 'mqtt')
  test.after(() => socket.terminate())
  const [packets, payloads] = [parser(), []]
  const send = (packet) => socket.send(generate(packet))
  socket.on('message', (data) => packets.parse(data))
  const subscribed = new Promise((resolve) => {
    packets.on('packet', ({ cmd, messageId, payload }) => {
      if (cmd === 'connack') send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] })
      if (cmd === 'suback') resolve()
      if (cmd !== 'publish') return
      payloads.push(payload.toString())
      send({ cmd: 'puback', messageId })
    })
  })
  await once(socket, 'open')
  send({ cmd: 'connect', protocolId: 'MQTT', protocolVersion: 4, clean: true, clientId: 'observer', keepalive: 0 })
  await subscribed
  return payloads
}

describe('mosquitto', { skip: mosquitto ? false : 'no mosquitto here' }, () => {
  for (const profile of ['mqtt', 'mqtt5']) {
    test(`${profile}: every message is confirmed, and the broker has passed it on`, async (t) => {
      const url = await broker(t, ['allow_anonymous true'])
      const payloads = await observe(t, url, 'rooms/+')
      const flags = ['--set', 'topic=rooms/{{user}}', '--message', '{{seq}}', '--subscribe', 'rooms/0']
      assertAll(await load(url, '--profile', profile, '-c', '4', '-p', '5', '-n', '200', ...flags), 200)
      while (payloads.length < 200) await sleep(10)
      const numbers = payloads.map(Number).sort((a, b) => a - b)
      assert.equal(new Set(numbers).size, 200, payloads.join())
    })

    test(`${profile}: subscribers receive what others publish, with its age`, async (t) => {
      const url = await broker(t, ['allow_anonymous true'])
      const topic = ['--subscribe', 'sensors/#', '--set', `topic=sensors/[${'x'.repeat(120)}`]
      const result = await load(url, '--profile', profile, '-c', '3', '-n', '60', '--timestamp-field', '/at', ...topic)
      assertAll(result, 60)
      assert.ok(result.received.messages > 60, told(result))
      assert.ok(result.message_age_us.count > 0, JSON.stringify(result.message_age_us))
    })

    test(`${profile}: a refused login is told with its reason`, async (t) => {
      const lines = ['allow_anonymous false', 'password_file FOLDER/passwords']
      const url = await broker(t, lines, { passwords: 'me:right\n' })
      const login = (password) => ['--profile', profile, '-c', '2', '-n', '10', '--set', 'username=me', '--set', `password=${password}`]
      assertAll(await load(url, ...login('right')), 10)
      const reason = profile === 'mqtt' ? 'not authorized (0x05)' : 'not authorized (0x87)'
      for (const flags of [login('wrong'), ['--profile', profile, '-c', '2', '-n', '10']]) {
        const result = await load(url, ...flags)
        assert.ok(result.notes.some((note) => note.includes(`2 × \`${reason}\``)), told(result))
      }
    })

    test(`${profile}: idle connections send pings in time`, async (t) => {
      // A broker each: when Mosquitto 2.0.11 ends clients that it has not heard, it may end one that it has.
      const brokers = [await broker(t, ['allow_anonymous true']), await broker(t, ['allow_anonymous true'])]
      // It looks every five seconds for the clients that it has not heard.
      const idle = ['--profile', profile, '-c', '2', '--messages-per-s', '0', '-d', '12s', '--set', 'keep_alive=2']
      const loads = ['300ms', '0s'].map((ping, at) => load(brokers[at], ...idle, '--set', `ping=${ping}`))
      const [kept, lost] = await Promise.all(loads)
      assert.deepEqual(kept.errors, {}, told(kept))
      assert.notDeepEqual(lost.errors, {}, 'without pings the broker closes')
    })
  }

  test('mqtt5: a refused message has failed, with its reason', async (t) => {
    const lines = ['allow_anonymous true', 'acl_file FOLDER/acl']
    const url = await broker(t, lines, { acl: 'topic readwrite open\n' })
    assertAll(await load(url, '--profile', 'mqtt5', '-c', '2', '-n', '10', '--set', 'topic=open'), 10)
    const result = await load(url, '--profile', 'mqtt5', '-c', '2', '-n', '10', '--set', 'topic=closed')
    assert.equal(result.errors['refused-by-server'], 10, told(result))
    assert.ok(result.notes.some((note) => note.includes('10 × `not authorized (0x87)`')), told(result))
  })
})

/** A server that passes on the bytes of its packets as `cut` divides them into frames. */
async function scripted(test, protocolVersion, answer, cut) {
  const { http, url } = await listen(test)
  const sockets = new WebSocketServer({ server: http })
  const seen = []
  sockets.on('connection', (socket) => {
    const packets = parser({ protocolVersion })
    packets.on('error', (error) => seen.push({ cmd: 'error', error: `${error}` }))
    let waiting = Buffer.alloc(0)
    packets.on('packet', (packet) => {
      seen.push(packet)
      const answers = answer(packet).map((one) => (Buffer.isBuffer(one) ? one : generate(one, { protocolVersion })))
      waiting = Buffer.concat([waiting, ...answers])
    })
    socket.on('message', (data) => {
      packets.parse(data)
      for (const frame of cut(waiting)) socket.send(frame)
      waiting = Buffer.alloc(0)
    })
  })
  return { url, seen }
}

const cuts = {
  'each byte is a frame': (bytes) => Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)),
  'all packets are in one frame': (bytes) => [bytes],
  'frames end anywhere': (bytes) => {
    const frames = []
    for (let at = 0, size = 1; at < bytes.length; at += size, size = (size * 5) % 7) frames.push(bytes.subarray(at, at + size))
    return frames
  },
}

for (const [profile, protocolVersion] of [['mqtt', 4], ['mqtt5', 5]]) {
  for (const [name, cut] of Object.entries(cuts)) {
    test(`${profile}: ${name}`, async (t) => {
      const payload = `{"at":${Date.now()},"text":"${'x'.repeat(200)}"}`
      const answer = ({ cmd, messageId }) => {
        if (cmd === 'connect') return [{ cmd: 'connack', returnCode: 0, reasonCode: 0, sessionPresent: false, properties: { userProperties: { long: 'y'.repeat(300) } } }]
        if (cmd !== 'publish') return []
        const event = { cmd: 'publish', topic: 'news', payload, qos: 0 }
        // A reason makes its length two bytes.
        return [event, { cmd: 'puback', messageId, reasonCode: 0, properties: { reasonString: 'z'.repeat(200) } }, event]
      }
      const { url, seen } = await scripted(t, protocolVersion, answer, cut)
      const result = await load(url, '--profile', profile, '-c', '2', '-p', '3', '-n', '50', '--timestamp-field', 'at')
      assertAll(result, 50)
      assert.ok(result.message_age_us.count >= 98, JSON.stringify(result.message_age_us))
      const [connect] = seen
      assert.deepEqual([connect.cmd, connect.protocolVersion, connect.clean, connect.keepalive], ['connect', protocolVersion, true, 60])
      assert.deepEqual([connect.username, connect.password], [undefined, undefined])
      const published = seen.filter(({ cmd }) => cmd === 'publish')
      assert.equal(new Set(published.map(({ payload }) => JSON.parse(payload).seq)).size, 50)
      assert.ok(published.every(({ qos, retain, dup, topic, messageId }) => qos === 1 && !retain && !dup && topic === 'tidewire' && messageId > 0))
    })
  }

  test(`${profile}: every packet is as the parser of others reads it`, async (t) => {
    const answer = ({ cmd, messageId }) => {
      if (cmd === 'connect') return [{ cmd: 'connack', returnCode: 0, reasonCode: 0, sessionPresent: false }]
      if (cmd === 'subscribe') return [{ cmd: 'suback', messageId, granted: [0x80] }]
      if (cmd === 'pingreq') return [{ cmd: 'pingresp' }]
      return [{ cmd: 'puback', messageId, reasonCode: 0 }]
    }
    const { url, seen } = await scripted(t, protocolVersion, answer, cuts['all packets are in one frame'])
    const set = ['client=me', 'username=name', 'password=word', 'ping=50ms'].flatMap((value) => ['--set', value])
    const flags = [...set, '--subscribe', 'a/#', '--messages-per-s', '5', '-d', '1s']
    const result = await load(url, '--profile', profile, '-c', '1', ...flags)
    assert.equal(result.requests.failed, 0, told(result))
    const [connect, subscribe] = seen
    assert.deepEqual([connect.clientId, connect.username, connect.password.toString()], ['me', 'name', 'word'])
    assert.deepEqual([subscribe.cmd, subscribe.subscriptions[0].topic, subscribe.subscriptions[0].qos], ['subscribe', 'a/#', 0])
    assert.deepEqual([...new Set(seen.map(({ cmd }) => cmd))].sort(), ['connect', 'pingreq', 'publish', 'subscribe'])
    const reason = profile === 'mqtt' ? 'the subscription is refused (0x80)' : '0x80'
    assert.ok(result.notes.some((note) => note.includes(`1 × \`${reason}\``)), told(result))
  })
}

test('mqtt5: refusals and the end of a session have their codes', async (t) => {
  const codes = { quota: 0x97, other: 0x83 }
  const answer = ({ cmd, messageId, payload }) => {
    if (cmd === 'connect') return [{ cmd: 'connack', reasonCode: 0, sessionPresent: false }]
    const text = payload.toString()
    if (text === 'end') return [{ cmd: 'disconnect', reasonCode: 0x8b }]
    return [{ cmd: 'puback', messageId, reasonCode: codes[text] ?? 0x10 }]
  }
  const { url } = await scripted(t, 5, answer, (bytes) => [bytes])
  const sent = (text) => load(url, '--profile', 'mqtt5', '-c', '1', '-n', '5', '--message', text)
  assertAll(await sent('nobody subscribes'), 5)
  for (const [text, reason] of [['quota', 'quota exceeded (0x97)'], ['other', '0x83']]) {
    const result = await sent(text)
    assert.equal(result.errors['refused-by-server'], 5, told(result))
    assert.ok(result.notes.some((note) => note.includes(`5 × \`${reason}\``)), told(result))
  }
  const ended = await sent('end')
  assert.equal(ended.errors['ended-by-message'], 1, told(ended))
  assert.ok(ended.notes.some((note) => note.includes('1 × `0x8b`')), told(ended))
})

test('a wrong length ends the session', async (t) => {
  const wrong = [[0x40, 0xff, 0xff, 0xff, 0xff], [0x40, 0xff, 0xff, 0xff, 0x7f]]
  for (const bytes of wrong) {
    const answer = ({ cmd }) => [cmd === 'connect' ? { cmd: 'connack', returnCode: 0, sessionPresent: false } : Buffer.from(bytes)]
    const { url } = await scripted(t, 4, answer, (all) => [all])
    const result = await load(url, '--profile', 'mqtt', '-c', '1', '-n', '3')
    assert.equal(result.errors['bad-length'], 1, told(result))
    assert.equal(result.requests.succeeded, 0, told(result))
  }
})

test('a protocol with lengths of one’s own: values that are captured bytes, and messages that do not fit', async (t) => {
  const profile = await file(
    t,
    `
    binary = true
    length = { at = 0, size = "u16le" }
    start = ["{{size:u16le}}hello"]
    send = "{{size:u16le}}{{session}}{{u32:seq}}{{size:u8}}{{message}}{{end}}{{u8:count}}"
    reply = "seq:3..7"
    [[rule]]
    hex = { "+0" = "ff" }
    capture = { session = "bytes:3..5", count = "bytes:5.." }
    ready = true
  `,
  )
  const { http, url } = await listen(t)
  const sockets = new WebSocketServer({ server: http })
  const seen = []
  sockets.on('connection', (socket) => {
    socket.on('message', (data) => {
      seen.push(data)
      if (data.toString('latin1', 2) === 'hello') return socket.send(Buffer.from([5, 0, 0xff, 1, 2, 0x34, 0x32]))
      // The number of the message is after the session.
      socket.send(Buffer.concat([Buffer.from([5, 0, 0]), data.subarray(4, 8)]))
    })
  })
  const run = (message) => load(url, '--profile', profile, '-c', '1', '-n', '3', '--message', message)
  assertAll(await run('a{{hex:00}}'), 3)
  assert.deepEqual(seen[1], Buffer.from([10, 0, 1, 2, 0, 0, 0, seen[1][7], 2, 0x61, 0, 42]))
  const long = await run(`${'a'.repeat(250)}{{now_us}}`)
  assert.equal(long.errors['message-exceeds-its-size'], 1, told(long))
  assert.equal(long.requests.succeeded, 0, told(long))
})
