// `tidewire load --profile` against the servers of other protocols: those that npm has, and for the others a server that
// sends their published frames.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { GraphQLError, GraphQLInt, GraphQLObjectType, GraphQLSchema, GraphQLString } from 'graphql'
import { useServer } from 'graphql-ws/use/ws'
import { Server } from 'socket.io'
import StompServer from 'stomp-broker-js'
import { WebSocketServer } from 'ws'

import { assertAll, file, listen, told } from './loads.js'
import { load } from './tidewire.js'

test('socket.io: events with acknowledgements, and connections that outlive many heartbeats', async (t) => {
  const { http, url } = await listen(t)
  const server = new Server(http, { pingInterval: 200, pingTimeout: 1000 })
  const seen = []
  let missed = 0
  server.on('connection', (socket) => {
    socket.on('message', (data, acknowledge) => {
      seen.push(data)
      acknowledge('ok')
    })
    socket.on('disconnect', (reason) => {
      missed += reason === 'ping timeout' ? 1 : 0
    })
  })
  const result = await load(url, '--profile', 'socket.io', '-c', '5', '--messages-per-s', '10', '-d', '3s')
  assert.equal(missed, 0, 'nobody missed a heartbeat')
  assert.ok(result.requests.succeeded >= 120, told(result))
  assertAll(result, seen.length)
  assert.equal(new Set(seen.map((one) => typeof one.at)).size, 1)
  await server.close()
})

test('socket.io: what the server asks of a client confirms nothing', async (t) => {
  const { http, url } = await listen(t)
  const server = new Server(http)
  server.on('connection', (socket) => {
    // Its numbers are those of the messages, and it never acknowledges one.
    socket.on('message', () => socket.emit('question', 1, () => {}))
  })
  const result = await load(url, '--profile', 'socket.io', '-c', '1', '-n', '3', '--timeout-ms', '500')
  assert.equal(result.requests.succeeded, 0, told(result))
  await server.close()
})

test('a scenario gives the messages of a profile', async (t) => {
  const { http, url } = await listen(t)
  const server = new Server(http)
  const seen = []
  server.on('connection', (socket) => {
    socket.onAny((name, data, acknowledge) => {
      seen.push(`${name} ${data.n}`)
      acknowledge('ok')
    })
  })
  const scenario = await file(t, '[[request]]\njson = ["a", {n = 1}]\n[[request]]\nbody = \'["b",{"n":{{user}}}]\'\n')
  assertAll(await load(url, '--profile', 'socket.io', '-c', '1', '-n', '4', '--scenario', scenario), 4)
  assert.deepEqual(seen, ['a 1', 'b 0', 'a 1', 'b 0'])
  await server.close()
})

test('socket.io: a middleware that refuses is told with its words', async (t) => {
  const { http, url } = await listen(t)
  const server = new Server(http)
  server.use((_socket, next) => next(new Error('no token')))
  const result = await load(url, '--profile', 'socket.io', '-c', '3', '-n', '3')
  assert.ok(result.notes.some((note) => note.includes('3 × `no token`')), told(result))
  await server.close()
})

test('graphql-ws: queries, and results with errors are failures', async (t) => {
  const { http, url } = await listen(t)
  const fields = {
    add: {
      type: GraphQLInt,
      args: { a: { type: GraphQLInt }, b: { type: GraphQLInt } },
      resolve: (_, { a, b }) => a + b,
    },
    broken: {
      type: GraphQLString,
      resolve: () => {
        throw new GraphQLError('out of stock')
      },
    },
  }
  const schema = new GraphQLSchema({ query: new GraphQLObjectType({ name: 'Query', fields }) })
  const sockets = new WebSocketServer({ server: http })
  useServer({ schema }, sockets, 100)
  const sum = '"{ add(a: {{rand:1:9}}, b: 2) }"'
  assertAll(await load(url, '--profile', 'graphql-ws', '-c', '4', '-n', '200', '--message', sum), 200)
  const broken = await load(url, '--profile', 'graphql-ws', '-c', '2', '-n', '20', '--message', '"{ broken }"')
  assert.equal(broken.requests.failed, 20, told(broken))
  assert.equal(broken.errors['refused-by-server'], 20)
  assert.ok(broken.notes.some((note) => note.includes('20 × `out of stock`')), told(broken))
  const wrong = await load(url, '--profile', 'graphql-ws', '-c', '1', '-n', '2', '--message', '"{ missing }"')
  assert.ok(wrong.notes.some((note) => note.includes('Cannot query field')), told(wrong))
})

test('stomp: messages to a broker that gives no receipts', async (t) => {
  const { http, url } = await listen(t)
  const server = new StompServer({ server: http, path: '/ws', heartbeat: [0, 0] })
  let received = 0
  server.subscribe('/topic/load', () => {
    received += 1
  })
  const result = await load(url, '--profile', 'stomp', '-c', '3', '-n', '90', '--reply', 'pong')
  assertAll(result, 90)
  assert.equal(received, 90)
})

/** A server that answers each message, or part of one up to `separator`, with the messages that `answer` returns. */
async function scripted(test, answer, { separator = '', subprotocol, greeting } = {}) {
  const { http, url } = await listen(test)
  const sockets = new WebSocketServer({ server: http, handleProtocols: () => subprotocol ?? false })
  const seen = []
  sockets.on('connection', (socket, request) => {
    seen.push(request.url)
    const send = (messages) => {
      // One frame for all that end with a separator.
      const frames = separator === '' ? messages : [messages.map((message) => message + separator).join('')]
      for (const frame of frames) if (frame !== '') socket.send(frame)
    }
    send(greeting ? [greeting] : [])
    socket.on('message', (data) => {
      const text = data.toString()
      const parts = separator === '' ? [text] : text.split(separator).slice(0, -1)
      seen.push(...parts)
      send(parts.flatMap((part) => answer(part)))
    })
  })
  return { url, seen }
}

test('signalr: invocations, pings, and errors', async (t) => {
  // Frames of the specification: https://github.com/dotnet/aspnetcore/blob/main/src/SignalR/docs/specs/HubProtocol.md
  const answer = (text) => {
    const message = JSON.parse(text)
    if (message.protocol) return ['{}']
    if (message.type === 6) return []
    const { invocationId, arguments: given } = message
    const completion = given[0] === 'fail' ? { error: 'it failed' } : { result: given[0] }
    return [JSON.stringify({ type: 6 }), JSON.stringify({ type: 3, invocationId, ...completion })]
  }
  const { url, seen } = await scripted(t, answer, { separator: '\x1e' })
  assertAll(await load(url, '--profile', 'signalr', '-c', '2', '-n', '40'), 40)
  assert.ok(seen.includes('{"protocol":"json","version":1}'))
  const failing = '"target":"Echo","arguments":["fail"]'
  const failed = await load(url, '--profile', 'signalr', '-c', '1', '-n', '5', '--message', failing)
  assert.ok(failed.notes.some((note) => note.includes('5 × `it failed`')), told(failed))
})

test('phoenix: a channel with replies', async (t) => {
  // Frames of the client of Phoenix 1.8, serializer 2.0.0.
  const answer = (text) => {
    const [join, ref, topic, event, payload] = JSON.parse(text)
    if (payload.at === 'fail') return [JSON.stringify([join, ref, topic, 'phx_reply', { status: 'error', response: { reason: 'full' } }])]
    const reply = JSON.stringify([join, ref, topic, 'phx_reply', { status: 'ok', response: {} }])
    return event === 'phx_join' ? [reply] : [JSON.stringify([null, null, topic, 'news', {}]), reply]
  }
  const { url, seen } = await scripted(t, (text) => answer(text).slice(-1))
  assertAll(await load(url, '--profile', 'phoenix', '-c', '2', '-n', '40'), 40)
  assert.equal(seen[0], '/socket/websocket?vsn=2.0.0')
  const failed = await load(url, '--profile', 'phoenix', '-c', '1', '-n', '5', '--message', '{"at":"fail"}')
  assert.ok(failed.notes.some((note) => note.includes('5 × `full`')), told(failed))
})

test('centrifugo: commands and replies in lines', async (t) => {
  // Frames of https://centrifugal.dev/docs/transports/client_protocol
  const answer = (text) => {
    const command = JSON.parse(text)
    if (command.connect) return ['{"id":1,"connect":{"client":"c","ping":25,"pong":true}}']
    if (command.id === undefined) return []
    if (command.rpc) return ['{}', JSON.stringify({ id: command.id, error: { code: 108, message: 'method not found' } })]
    return ['{}', JSON.stringify({ id: command.id })]
  }
  const { url, seen } = await scripted(t, answer, { separator: '\n' })
  assertAll(await load(url, '--profile', 'centrifugo', '-c', '2', '-n', '40'), 40)
  assert.ok(seen.includes('{}'), 'the pings are answered')
  const failed = await load(url, '--profile', 'centrifugo', '-c', '1', '-n', '5', '--message', '"rpc":{"method":"a"}')
  assert.ok(failed.notes.some((note) => note.includes('5 × `method not found`')), told(failed))
})

test('action cable: a channel without replies', async (t) => {
  // Frames of the client of Rails 8.
  const answer = (text) => {
    const { command, identifier } = JSON.parse(text)
    if (command === 'subscribe') return [JSON.stringify({ identifier, type: 'confirm_subscription' })]
    return [JSON.stringify({ type: 'ping', message: 1 })]
  }
  const options = { subprotocol: 'actioncable-v1-json', greeting: '{"type":"welcome"}' }
  const { url, seen } = await scripted(t, (text) => answer(text), options)
  assertAll(await load(url, '--profile', 'action-cable', '-c', '2', '-n', '40'), 40)
  assert.equal(seen[0], '/cable')
  assert.equal(seen.filter((one) => one.includes('"echo')).length, 40)
})

test('a conversation of one’s own: values of a hello, an interval from the server, counts and an end', async (t) => {
  const profile = await file(
    t,
    `
    start = ["hello"]
    send = '{"session":"{{session}}","id":{{seq}},"p":{{message}}}'
    message = '1'
    reply = "field:id"
    [[rule]]
    json = { "/hello" = "*" }
    capture = { session = "json:/hello/session" }
    ready = true
    [[rule]] # The interval comes only after the session is ready.
    json = { "/config" = "*" }
    capture = { beat = "json:/config/every" }
    [[rule]]
    json = { "/news" = "*" }
    count = "news"
    [[rule]]
    is = "beaten"
    count = "beats"
    [[rule]]
    contains = "good bye"
    close = true
    [[every]]
    interval = "{{beat}}ms"
    send = '"beat of {{session}}"'
  `,
  )
  let sessions = 0
  const times = []
  const answer = (text) => {
    if (text === '"beat of s-2"') times.push(Date.now())
    if (text === 'hello') {
      if (++sessions === 2) times.push(Date.now())
      return [JSON.stringify({ hello: { session: `s-${sessions}` } }), '{"config":{"every":100}}']
    }
    if (text.startsWith('"beat')) return ['beaten']
    const message = JSON.parse(text)
    if (message.p === 'bye') return ['well, good bye']
    return [JSON.stringify({ id: message.id })]
  }
  const { url, seen } = await scripted(t, answer)
  const result = await load(url, '--profile', profile, '-c', '2', '--messages-per-s', '20', '-d', '1s')
  assertAll(result, result.requests.sent)
  assert.ok(seen.some((text) => text.startsWith('{"session":"s-1","id":')), 'messages have the value of the hello')
  // None earlier than a tenth of a second after the one before; the clock here has milliseconds.
  const [beats, lasted] = [times.length - 1, times.at(-1) - times[0] + 1]
  assert.ok(beats >= 4 && beats <= lasted / 100, `${beats} beats in ${lasted} ms`)
  assert.ok(result.notes.some((note) => /× `beats`/.test(note)), told(result))
  const ended = await load(url, '--profile', profile, '-c', '1', '-n', '3', '--message', '"bye"')
  assert.equal(ended.errors['ended-by-message'], 1, told(ended))
  const header = ['-H', 'Sec-WebSocket-Protocol: a, b']
  const chosen = await scripted(t, (text) => [text], { subprotocol: 'b' })
  assertAll(await load(chosen.url, '-c', '1', '-n', '3', '--reply', 'order', ...header), 3)
})

test('replies are found by topic: of several messages on one the oldest is confirmed first', async (t) => {
  const scenario = await file(
    t,
    `
    order = "weighted"
    ${['a', 'b'].flatMap((topic) => ['one', 'two'].map((name) => `
    [[request]]
    name = "${topic}-${name}"
    body = '{"deep":{"topic":"${topic}"},"name":"${topic}-${name}"}'
    `)).join('')}
  `,
  )
  const profile = await file(t, '[[rule]]\njson = { "/error" = "*" }\nfail = "json:/error"\n')
  const oldest = {}
  let waiting = []
  // Each four messages are answered at once: the topics in another order, and on each the first reply is a refusal.
  const answer = (text) => {
    waiting.push(JSON.parse(text))
    if (waiting.length < 4) return []
    const topics = [...new Set(waiting.map(({ deep }) => deep.topic))].reverse()
    const answers = topics.flatMap((topic) => {
      const [first, ...others] = waiting.filter(({ deep }) => deep.topic === topic)
      oldest[first.name] = (oldest[first.name] ?? 0) + 1
      return [{ error: 'the oldest', deep: { topic } }, ...others.map(() => ({ deep: { topic } }))]
    })
    waiting = []
    return answers.map((one) => JSON.stringify(one))
  }
  const { url } = await scripted(t, answer)
  const flags = ['--profile', profile, '--reply', 'field:/deep/topic', '--scenario', scenario, '-c', '1', '-p', '4', '-n', '80']
  const result = await load(url, ...flags)
  const failed = Object.fromEntries(result.targets.map(({ name, requests }) => [name, requests.failed]).filter(([, count]) => count > 0))
  assert.deepEqual(failed, oldest, told(result))
  assert.equal(result.requests.succeeded + result.requests.failed, 80)
  assert.ok(result.requests.succeeded > 0)
})

test('values of the profiles are set, and subscriptions have their form', async (t) => {
  const cases = {
    stomp: {
      separator: '\0',
      answer: (text) => (text.startsWith('CONNECT') ? ['CONNECTED\n\n'] : text.startsWith('SEND') ? [`RECEIPT\nreceipt-id:${text.match(/receipt:(\d+)/)[1]}\n\n`] : []),
      set: ['login=me', 'passcode=word', 'host=a.example'],
      subscribe: '/topic/a',
      seen: [
        /^CONNECT\naccept-version:1.1,1.2\nheart-beat:0,0\nhost:a.example\nlogin:me\npasscode:word\n\n$/,
        /^SUBSCRIBE\nid:[-0-9a-f]{36}\ndestination:\/topic\/a\n\n$/,
      ],
    },
    centrifugo: {
      separator: '\n',
      answer: (text) => {
        const { id, connect, subscribe } = JSON.parse(text)
        return [JSON.stringify({ id, ...(connect && { connect: {} }), ...(subscribe && { subscribe: {} }) })]
      },
      set: ['token=me'],
      subscribe: 'news',
      seen: [/^{"id":1,"connect":{ "token":"me"}}$/, /^{"id":2\d+,"subscribe":{"channel":"news"}}$/],
    },
    phoenix: {
      answer: (text) => {
        const [join, ref, topic] = JSON.parse(text)
        return [JSON.stringify([join, ref, topic, 'phx_reply', { status: 'ok', response: {} }])]
      },
      set: ['topic=room:{{user}}', 'event=shout'],
      seen: [/^\["1","1","room:0","phx_join",{}\]$/, /^\["1","m\d+","room:0","shout",/],
    },
    'action-cable': {
      answer: (text) => (text.startsWith('{"command":"subscribe"') ? ['{"type":"confirm_subscription"}'] : []),
      greeting: '{"type":"welcome"}',
      set: ['channel=Room'],
      subscribe: 'News',
      seen: [/"identifier":"{\\"channel\\":\\"Room\\"}"}$/, /"identifier":"{\\"channel\\":\\"News\\"}"}$/],
    },
  }
  for (const [profile, { answer, set, subscribe, seen: expected, ...options }] of Object.entries(cases)) {
    const { url, seen } = await scripted(t, answer, { ...options, subprotocol: profile === 'action-cable' && 'actioncable-v1-json' })
    const flags = [...set.flatMap((pair) => ['--set', pair]), ...(subscribe ? ['--subscribe', subscribe] : [])]
    const result = await load(url, '--profile', profile, '-c', '1', '-n', '5', ...flags)
    assertAll(result, 5)
    assert.equal(result.received?.unsolicited ?? 0, 0, `${profile}: ${JSON.stringify(result.received)}`)
    for (const pattern of expected) assert.ok(seen.some((text) => pattern.test(text)), `${profile}: ${pattern} ${seen.join('|')}`)
  }
})

test('graphql-ws: subscriptions beside queries', async (t) => {
  const { http, url } = await listen(t)
  const query = { ok: { type: GraphQLInt, resolve: () => 1 } }
  const counted = {
    type: GraphQLInt,
    subscribe: async function* () {
      for (let counted = 0; ; counted += 1) {
        await sleep(20)
        yield { counted }
      }
    },
  }
  const schema = new GraphQLSchema({
    query: new GraphQLObjectType({ name: 'Query', fields: query }),
    subscription: new GraphQLObjectType({ name: 'Subscription', fields: { counted } }),
  })
  useServer({ schema }, new WebSocketServer({ server: http }), 100)
  const flags = ['--message', '"{ ok }"', '--subscribe', '"subscription { counted }"', '--messages-per-s', '10', '-d', '1s']
  const result = await load(url, '--profile', 'graphql-ws', '-c', '2', ...flags)
  assertAll(result, result.requests.sent)
  assert.ok(result.received.unsolicited > 0, JSON.stringify(result.received))
})
