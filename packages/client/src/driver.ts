/** The driver of a client: opens connections, moves frames, keeps the timers, and decides what follows an end. */

import { DEVELOPMENT } from "#development";
import { type Attempt, describe, endError, requestOf, truncate } from "./attempt.js";
import { isServersFault } from "./codes.js";
import { Backoff, defaultReconnect } from "./core/backoff.js";
import { base64 } from "./core/bytes.js";
import type { EncodedPayload, Envelope, EnvelopeFields, KeyExchange } from "./core/layers.js";
import type { RequestOptions } from "./core/outbound.js";
import { bytesOf } from "./core/payload.js";
import { direct } from "./core/pipeline.js";
import { retryDelay } from "./core/reconnection.js";
import { type Hints, type Now, Session, type SessionHost } from "./core/session.js";
import { TidewireError } from "./errors.js";
import { type ClientEvents, type ConnectionState, type ConnectionStatus, statusOf, Value } from "./events.js";
import { Message } from "./message.js";
import { given, type LogLevel, type ResolvedOptions, withoutSecrets } from "./options.js";
import { isNetworkPoor } from "./page.js";
import type { CloseInfo, Frame, Transport } from "./transport.js";

/** A session that lasted so long was none that the server accepted only to lose it. */
const STEADY_MS = 5_000;
/** How long a close waits for pending work, and then for the server's answer. */
const CLOSE_MS = 5_000;
/** The same if the server has not sent its hello. */
const CLOSE_EARLY_MS = 1_000;
/** Wakes connect at most once in this time. */
const WAKE_MS = 5_000;
/** A timer that is later than this was throttled, or the machine slept. */
const LATE_MS = 5_000;
/** The longest wait that a server can ask of a page that is away. */
const HINT_AWAY_MS = 600_000;
const TIMER_MS_MAX = 2 ** 31 - 1;

export interface DriverHost {
  emit<Name extends keyof ClientEvents>(name: Name, detail: ClientEvents[Name]): void;
  /** There is room to send, or the state has changed. */
  changed(): void;
  /** An error of the application's own code. */
  report(error: unknown): void;
}

interface Closing {
  code: number;
  reason: string;
  deadlineMs: number;
  /** The close frame is sent; only the server's answer is missing. */
  isSent: boolean;
  done: () => void;
}

export function now(): Now {
  return { ms: performance.now(), unixMs: Date.now() };
}

export class Driver implements SessionHost {
  readonly session: Session;
  readonly status: Value<ConnectionStatus>;
  readonly options: ResolvedOptions;
  readonly host: DriverHost;
  readonly #transport: Transport;
  readonly #backoff: Backoff;
  #attempt: Attempt | undefined;
  /** Connections that were ended and have not reported it. */
  readonly #abandoned = new Set<Attempt>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerMs = Infinity;
  #isFlushing = false;
  /** When the frames that are being read arrived. */
  #moment: Now = now();
  /** When the next attempt is due. */
  #nextAttemptMs = Infinity;
  /** A wake does not connect sooner: the server has asked for a wait, or another wake has connected. */
  #wakeableMs = 0;
  #token: Promise<string | undefined> | undefined;
  #closing: Closing | undefined;
  #closed: Promise<void> | undefined;
  /** Endpoints that were tried, while somebody waits for the first session. */
  #firstRound: number[] | undefined;
  #wasAccepted = false;
  /** The page is frozen or in the back/forward cache. */
  #isAway = false;
  /** Why there is no further connection. */
  error: TidewireError | undefined;

  constructor(options: ResolvedOptions, transport: Transport, host: DriverHost) {
    this.options = options;
    this.host = host;
    this.#transport = transport;
    this.#backoff = new Backoff(options.reconnect ?? defaultReconnect);
    this.status = new Value(statusOf("connecting"));
    this.session = new Session(options, this);
  }

  /** Begins. With `isFirstRound` the client ends when each endpoint was tried once without success. */
  start(isFirstRound: boolean): void {
    if (isFirstRound) this.#firstRound = [];
    this.#connect();
  }

  get state(): ConnectionState {
    return this.status.get().state;
  }

  /** Whether the connection has room for more. */
  get hasRoom(): boolean {
    const socket = this.#attempt?.socket;
    return socket !== undefined && socket.bufferedBytes < this.options.outboxBytesMax;
  }

  get isPoor(): boolean | undefined {
    const { adapt, quality } = this.options;
    return adapt && (isNetworkPoor() || quality?.isPoor());
  }

  /** Throws if the client has ended, or is about to. */
  checkOpen(): void {
    const { error } = this;
    if (error) throw new TidewireError("CLOSED", error.message, { fault: error.fault, cause: error });
    if (this.#closing) throw closedError();
  }

  /** Makes a request and resolves with the payload of its answer. */
  async ask(t: string, payload: object, options: RequestOptions): Promise<Envelope> {
    this.checkOpen();
    const { format, outbound } = this.session;
    return outbound.request(t, format.payload(given(payload), ""), options, now());
  }

  /** The payload of an application as it stands in a message of the protocol, with its mark. */
  inner(payload: unknown): { payload?: unknown; binary?: true } {
    if (payload === undefined) return {};
    const bytes = bytesOf(payload);
    if (!bytes) return { payload };
    return { payload: this.session.format.query ? bytes : base64(bytes), binary: true };
  }

  /** The same for a request that does no harm twice. */
  query(t: string, payload: object, options: RequestOptions): Promise<Envelope> {
    return this.ask(t, payload, { ...options, isRepeatable: true });
  }

  write(fields: EnvelopeFields, payload: EncodedPayload | undefined, after?: () => unknown): void {
    this.#attempt!.pipeline!.write(fields, payload, after);
  }

  emit<Name extends keyof ClientEvents>(name: Name, detail: ClientEvents[Name]): void {
    this.host.emit(name, detail);
  }

  renew(reason: string): void {
    if (this.#attempt) this.#end(this.#attempt, 1000, reason, false);
    this.#isAway = false;
    this.#connect();
  }

  get url(): string {
    return this.#attempt?.url ?? "";
  }

  // Attempts

  #connect(): void {
    this.#nextAttemptMs = Infinity;
    if (this.#attempt || this.error || this.#closing || this.#isAway) return;
    const startMs = now().ms;
    const { urls, endpoints } = this.options;
    const chosen = endpoints?.choose(startMs, this.#firstRound ?? []) ?? { index: 0 };
    if ("waitMs" in chosen) return this.#waitFor(chosen.waitMs);
    const { index } = chosen;
    this.#firstRound?.push(index);
    this.#setStatus(statusOf("connecting"));
    const attempt: Attempt = { index, url: urls[index]!, startMs, isOver: false };
    this.#attempt = attempt;
    this.#log("debug", `connecting to ${withoutSecrets(attempt.url)}`);
    this.#open(attempt).catch((error: unknown) => {
      const reason = withoutSecrets(error instanceof Error ? error.message : String(error), attempt.secret);
      const isFatal =
        error instanceof TidewireError && ["NOT_SUPPORTED", "INVALID_OPTION"].includes(error.code);
      if (isFatal) attempt.ended = { code: 1006, reason, isFatal };
      this.#over(attempt, { code: 1006, reason });
    });
    this.#schedule();
  }

  async #open(attempt: Attempt): Promise<void> {
    const { token, encryption } = this.options;
    const [value, exchange] =
      typeof token === "function" || encryption
        ? await Promise.all([this.#askToken(), encryption?.begin()])
        : [token, undefined];
    if (this.#attempt !== attempt) return;
    if (value) attempt.secret = value;
    const { messageBytesMax } = this.options;
    attempt.socket = this.#transport.open(
      { ...requestOf(attempt.url, this.options, value, this.#transport), messageBytesMax },
      {
        onOpen: () => this.#opened(attempt, exchange),
        onMessages: (frames) => this.#received(attempt, frames),
        onDrain: () => this.changed(),
        onClose: (info) => {
          attempt.isGone = true;
          clearTimeout(attempt.abandon);
          this.#abandoned.delete(attempt);
          this.#over(attempt, info);
        },
      },
    );
    this.options.endpoints?.count(attempt.index, 1);
  }

  /**
   * Asks the application for a token, once at a time. If the answer needs longer than an attempt, the next
   * attempt uses it.
   */
  #askToken(): Promise<string | undefined> {
    const { token } = this.options;
    if (typeof token !== "function") return Promise.resolve(token);
    this.#token ??= (async () => token())().finally(() => {
      this.#token = undefined;
    });
    return this.#token;
  }

  async wantToken(): Promise<void> {
    const attempt = this.#attempt;
    const token = await this.#askToken().catch((error: unknown) => {
      this.#log("warn", "the token function failed", error);
      return undefined;
    });
    if (this.#attempt !== attempt) return;
    this.session.refreshToken(token, now());
    this.changed();
  }

  #opened(attempt: Attempt, exchange: KeyExchange | undefined): void {
    const { messageBytesMax, compression, signing, encryption } = this.options;
    const makePipeline = (compression ?? signing ?? encryption)?.pipeline ?? direct;
    attempt.pipeline = makePipeline(
      { format: this.session.format, compression, signing, exchange, messageBytesMax },
      {
        isOver: () => attempt.isOver,
        send: (frame) => attempt.isOver || attempt.socket!.send(frame),
        receive: (message) =>
          message instanceof Message
            ? this.session.receiveMessage(message, this.#moment)
            : this.session.receive(message, this.#moment),
        fail: (error) => this.#failed(attempt, error),
        refuse: (error) => this.#refuse(attempt, (error as Error).message),
        notify: (t, payload, after) => this.session.notify(t, payload, after),
        hold: () => attempt.socket!.pause?.(),
        proceed: (hasRoom) => {
          if (hasRoom) attempt.socket!.resume?.();
          this.#moment = now();
          this.changed();
        },
      },
    );
    this.session.connected(attempt.url, exchange, now());
    this.#schedule();
  }

  #received(attempt: Attempt, frames: readonly Frame[]): void {
    if (attempt.isOver) return;
    attempt.hasMessage = true;
    this.#moment = now();
    attempt.pipeline!.read(frames);
    this.changed();
  }

  /** A message could not be read or written, or a listener failed. */
  #failed(attempt: Attempt, error: unknown): void {
    if (attempt.isOver) return;
    const isOwn = error instanceof TidewireError;
    this.host.emit(
      "error",
      isOwn
        ? error
        : new TidewireError(
            "PROTOCOL_ERROR",
            DEVELOPMENT && `a message could not be handled: ${String(error)}`,
            { cause: error },
          ),
    );
  }

  /** Ends the connection with 1008, or with what stands for it. */
  #refuse(attempt: Attempt, reason: string): void {
    if (attempt.isOver) return;
    if (this.#transport.canSendAnyCode) this.#end(attempt, 1008, reason, true);
    else this.#end(attempt, 4406, `1008: ${reason}`, true);
  }

  // Time

  /** Something has changed: flushes at the end of this turn, sets the timer, and notifies the host. */
  changed(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    queueMicrotask(() => {
      this.#isFlushing = false;
      if (this.error) return;
      if (this.session.isOpen) this.session.flush(now());
      if (this.#closing && !this.#closing.isSent && this.session.isOpen && !this.#hasWork) this.#sendClose();
      this.#updateStatus();
      this.#schedule();
      this.host.changed();
    });
  }

  /** Something is to be sent, or on its way: a close waits for it. */
  get #hasWork(): boolean {
    const { outbound, producer } = this.session;
    return !!(outbound.bytes || outbound.isAwaited || producer?.isBusy || this.#attempt?.pipeline?.isBusy);
  }

  #updateStatus(): void {
    if (this.#closing || !this.session.isAccepted) return;
    const attempt = this.#attempt!;
    if (!this.#wasAccepted) {
      this.#wasAccepted = true;
      this.#firstRound = undefined;
    }
    if (!this.session.isOpen) return;
    if (attempt.openMs === undefined) {
      attempt.openMs = now().ms;
      this.options.endpoints?.succeeded(attempt.index, attempt.openMs - attempt.startMs);
      this.#mark("tidewire:open", attempt.startMs);
    }
    const { state } = this;
    const next = state !== "open" && this.session.subscriptions.isPending ? "recovering" : "open";
    if (next === state) return;
    if (state === "recovering") this.#mark("tidewire:recovered", attempt.openMs);
    this.#setStatus(statusOf(next));
  }

  #deadline(moment: Now): number {
    let next = Math.min(
      this.session.nextTimeout(moment),
      this.#nextAttemptMs,
      this.#closing?.deadlineMs ?? Infinity,
    );
    const attempt = this.#attempt;
    if (attempt && attempt.openMs === undefined) {
      next = Math.min(next, attempt.startMs + this.options.connectTimeoutMs);
    }
    return next;
  }

  #schedule(): void {
    const moment = now();
    const next = this.#deadline(moment);
    // A timer that fires early is set again; that is cheaper than to move it for each message.
    if (next >= this.#timerMs) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#timerMs = next;
    if (next === Infinity) return;
    const delayMs = Math.min(Math.max(next - moment.ms, 0), TIMER_MS_MAX);
    this.#timer = setTimeout(() => this.#timeout(), delayMs);
  }

  #timeout(): void {
    const moment = now();
    const isLate = moment.ms - this.#timerMs > LATE_MS;
    this.#timerMs = Infinity;
    if (isLate) this.session.wake(moment);
    const attempt = this.#attempt;
    if (
      attempt &&
      attempt.openMs === undefined &&
      moment.ms >= attempt.startMs + this.options.connectTimeoutMs
    ) {
      this.#end(attempt, 1006, "the server did not say hello in time", false);
    }
    try {
      this.session.timeout(moment);
    } catch (error) {
      if (attempt) this.#end(attempt, 1006, (error as Error).message, false);
    }
    if (moment.ms >= this.#nextAttemptMs) this.#connect();
    if (this.#closing && moment.ms >= this.#closing.deadlineMs) this.#sendClose();
    this.changed();
  }

  // The end of a connection

  /** Ends a connection from this side, without waiting for the server. With 1006 it is given up without a close frame. */
  #end(attempt: Attempt, code: number, reason: string, isFatal: boolean): void {
    attempt.ended ??= { code, reason, isFatal };
    const { socket } = attempt;
    const isLost = code === 1006;
    if (!isLost && (code >= 3000 || code === 1000 || this.#transport.canSendAnyCode))
      socket?.close(code, truncate(reason));
    this.#over(attempt, { code, reason });
    if (isLost || !attempt.pipeline) socket?.terminate();
    else if (socket && !attempt.isGone) {
      // A socket that never reports its end is given up. That of the last connection has this time too, so that the
      // server learns why.
      attempt.abandon = setTimeout(() => socket.terminate(), CLOSE_MS);
      this.#abandoned.add(attempt);
    }
  }

  #over(attempt: Attempt, info: CloseInfo): void {
    if (attempt.isOver) return;
    attempt.isOver = true;
    const { endpoints } = this.options;
    if (attempt.socket) endpoints?.count(attempt.index, -1);
    if (this.#attempt !== attempt) return;
    this.#attempt = undefined;
    const moment = now();
    const hints = this.session.disconnected();
    if (attempt.openMs !== undefined) this.#backoff.succeeded(moment.ms - attempt.openMs >= STEADY_MS);
    const isOurs = attempt.ended || info.isRefusal;
    if (!attempt.openMs || (!isOurs && isServersFault(info.code))) {
      endpoints?.failed(attempt.index, moment.ms);
    }
    const reason = attempt.ended?.reason ?? (info.reason || describe(info.code, attempt));
    const retryInMs = this.#isAway ? undefined : this.#retryIn(attempt, info, hints, moment);
    const askedMs = hints.reconnectAfterMs ?? hints.retryAfterMs ?? info.retryAfterMs;
    if (askedMs) this.#wakeableMs = moment.ms + (retryInMs ?? Math.min(askedMs, HINT_AWAY_MS));
    const goesOn = this.#isAway || retryInMs !== undefined;
    this.#log(goesOn ? "info" : "warn", `disconnected: ${reason} (${info.code})`, { retryInMs });
    const code = this.#closing?.isSent ? this.#closing.code : info.code;
    this.host.emit("disconnected", { code, reason, retryInMs: this.#closing ? undefined : retryInMs });
    if (this.#closing) return this.#finish(closedError());
    if (!goesOn) return this.#finish(endError(attempt, info, reason, this.#wasAccepted));
    if (this.#closing || this.error) return;
    this.#setStatus({ state: "waiting", reason, code: info.code, retryInMs });
    if (retryInMs !== undefined) this.#waitFor(retryInMs);
  }

  /** How long to wait before the next attempt; `undefined` for no further one. */
  #retryIn(attempt: Attempt, info: CloseInfo, hints: Hints, moment: Now): number | undefined {
    if (this.#closing || attempt.ended?.isFatal || !this.options.reconnect) return undefined;
    const { urls, endpoints } = this.options;
    if (this.#firstRound) return this.#firstRound.length < urls.length ? 0 : undefined;
    const hasTokens = typeof this.options.token === "function";
    const isOurs = attempt.ended !== undefined;
    const waitMs = retryDelay(this.#backoff, { info, hints, isOurs, hasTokens }, moment.ms, Math.random());
    return waitMs === undefined ? undefined : Math.max(waitMs, endpoints?.waitMs(moment.ms) ?? 0);
  }

  #waitFor(waitMs: number): void {
    this.#nextAttemptMs = now().ms + waitMs;
    this.#schedule();
  }

  // The page

  /**
   * The page, the network or the machine is back: asks a silent server, or connects without waiting further. A wait that
   * the server has asked for stays. The second of two wakes within `WAKE_MS` connects at the end of that time.
   */
  wake(): void {
    this.#isAway = false;
    if (this.#attempt) return this.check();
    const { ms } = now();
    if (ms >= this.#wakeableMs) {
      this.#wakeableMs = ms + WAKE_MS;
      return this.#connect();
    }
    if (this.#wakeableMs >= this.#nextAttemptMs) return;
    this.#nextAttemptMs = this.#wakeableMs;
    this.#wakeableMs += WAKE_MS;
    this.#schedule();
  }

  /** The network may be gone: asks the server, which has some seconds to answer. */
  check(): void {
    if (!this.#attempt) return;
    this.session.wake(now());
    this.#schedule();
  }

  /** The page is being frozen: closes the connection, so that the server does not keep a ghost. */
  away(reason: string): void {
    if (this.error || this.#closing) return;
    this.#isAway = true;
    this.#nextAttemptMs = Infinity;
    // A page that was connected may go and return as often as its user likes.
    if (this.session.isOpen) this.#wakeableMs = 0;
    if (this.#attempt) this.#end(this.#attempt, 1000, reason, false);
  }

  // The end of the client

  /** Waits for pending work, closes the connection, and ends every call that still waits. */
  close(code: number, reason: string): Promise<void> {
    this.#closed ??= new Promise((done) => {
      if (this.error) return done();
      const isOpen = this.session.isOpen;
      const moment = now();
      const openMs = this.#hasWork ? CLOSE_MS : 0;
      const waitMs = isOpen ? openMs : this.session.isAccepted ? CLOSE_EARLY_MS : 0;
      this.#closing = { code, reason, deadlineMs: moment.ms + waitMs, isSent: false, done };
      this.#nextAttemptMs = Infinity;
      this.#log("debug", `closing: ${code} ${reason}`);
      if (!this.#attempt) return this.#finish(closedError());
      if (!this.#attempt.pipeline) return this.#end(this.#attempt, 1000, "closed by the application", true);
      if (waitMs === 0) this.#sendClose();
      else this.changed();
    });
    return this.#closed;
  }

  /** Sends the close frame, or gives up waiting for its answer. */
  #sendClose(): void {
    const closing = this.#closing!;
    const attempt = this.#attempt;
    if (!attempt) return;
    const { code, reason } = closing;
    if (closing.isSent) {
      attempt.socket?.terminate();
      attempt.ended!.reason = "the server did not answer the close";
      return this.#over(attempt, { code, reason: "" });
    }
    closing.isSent = true;
    closing.deadlineMs = now().ms + CLOSE_MS;
    const isEarly = this.session.isAccepted && !this.session.isOpen;
    const words = isEarly ? "the server did not say hello" : reason || "closed by the application";
    attempt.ended = { code, reason: words, isFatal: true };
    attempt.socket!.close(code, truncate(reason));
    this.#schedule();
  }

  /** There is no further connection. */
  #finish(error: TidewireError): void {
    if (this.error) return;
    this.error = error;
    clearTimeout(this.#timer);
    this.#timerMs = -Infinity;
    for (const { socket, abandon } of this.#abandoned) {
      clearTimeout(abandon);
      socket?.terminate();
    }
    this.session.end(
      error.code === "CLOSED"
        ? error
        : new TidewireError("CLOSED", error.message, { fault: error.fault, cause: error }),
    );
    const { closeCode, message } = error;
    const code = this.#closing?.code ?? closeCode;
    this.#setStatus({
      state: "closed",
      reason: this.#closing?.reason || message,
      code,
      retryInMs: undefined,
    });
    this.host.changed();
    // Ends the calls that wait for an acknowledgement, also if the server has ended the session for good.
    this.options.queue?.close().catch(() => {});
    this.#closing?.done();
  }

  #setStatus(next: ConnectionStatus): void {
    const before = this.state;
    this.status.set(next);
    if (before !== next.state) this.#log("debug", `${before} -> ${next.state}`);
  }

  #log(level: LogLevel, message: string, details?: unknown): void {
    this.options.log?.(level, message, details);
  }

  /** A measure for the performance panel of the browser. */
  #mark(name: string, startMs: number): void {
    if (this.options.marks) performance.measure(name, { start: startMs, end: performance.now() });
  }
}

function closedError(): TidewireError {
  return new TidewireError("CLOSED", "the client is closed", "application");
}
