/**
 * Storage in an SQLite file by `node:sqlite`, which survives a crash of the process or of the
 * machine at any point. The tables are those of the Rust and Python clients, so that a file may go
 * from one to another.
 */

import { TextDecoder, TextEncoder } from "node:util";
import type { Priority } from "../core/queue-port.js";
import {
  type Depth,
  type Limits,
  type Meta,
  type NewRow,
  NUMBERED,
  type Row,
  type Storage,
  UNCERTAIN,
  WAITING,
  waitingOrder,
} from "./storage.js";

/** The used part of `node:sqlite`, which the types of Node 20 do not have. */
export interface Sqlite {
  DatabaseSync: new (path: string) => Database;
}

/** The used part of `node:fs`. */
export interface Files {
  openSync(path: string, flags: "wx", mode: number): number;
  closeSync(file: number): void;
  statSync(path: string, options: { throwIfNoEntry: false }): { mode: number } | undefined;
  chmodSync(path: string, mode: number): void;
}

interface Database {
  exec(sql: string): void;
  prepare(sql: string): Statement;
  close(): void;
}

interface Statement {
  run(...values: Value[]): { lastInsertRowid: number | bigint };
  all(...values: Value[]): Record<string, unknown>[];
}

type Value = string | number | Uint8Array | null;

/** A row as the file has it. */
interface Stored {
  row: number;
  level: Priority;
  number: number | null;
  topic: string | null;
  type: string;
  payload: Uint8Array;
  key: string | null;
  expires_ms: number | null;
  uncertain: number;
  binary?: number;
}

export class SqliteStorage implements Storage {
  depth: Depth = { messages: 0, bytes: 0 };
  readonly #sqlite: Sqlite;
  readonly #path: string;
  readonly #files: Files | undefined;
  readonly #statements = new Map<string, Statement>();
  /** The version of the file. */
  #version = 0;
  #database: Database | undefined;

  constructor(sqlite: Sqlite, path: string, files?: Files) {
    this.#sqlite = sqlite;
    this.#path = path;
    this.#files = files;
  }

  async open(producer: string): Promise<Meta> {
    if (!this.#database) {
      this.#create();
      this.#database = new this.#sqlite.DatabaseSync(this.#path);
      this.#restrict();
      try {
        this.#prepareFile(producer);
      } catch (error) {
        await this.close();
        if (!(error as Error).message.includes("locked")) throw error;
        throw new Error(`${this.#path} is in use by another client; give each a file of its own`, {
          cause: error,
        });
      }
    }
    const meta = new Map(
      this.#all("SELECT name, value FROM meta").map(({ name, value }) => [name, value as string]),
    );
    const epoch = meta.get("epoch");
    return {
      producer: meta.get("producer") ?? producer,
      // The file has it as a decimal number.
      epoch: epoch === undefined ? undefined : Number(epoch).toString(16).padStart(8, "0"),
    };
  }

  async add(rows: readonly NewRow[], { messagesMax, bytesMax }: Limits): Promise<(number | undefined)[]> {
    const depth = { ...this.depth };
    const isBinary = rows.some(({ binary }) => binary);
    const added = this.#transact(() => {
      if (isBinary) this.#upgrade(VERSIONS.length);
      return rows.map(
        ({ topic = null, type, payload, key = null, priority, bytes, expiresMs = null, binary }) => {
          if (depth.messages >= messagesMax || depth.bytes + bytes > bytesMax) return undefined;
          depth.messages += 1;
          depth.bytes += bytes;
          const values = [
            priority,
            topic,
            type,
            encoder.encode(payload),
            key,
            expiresMs && Math.floor(expiresMs),
          ];
          return binary ? this.#run(INSERT_BINARY, ...values) : this.#run(INSERT, ...values);
        },
      );
    });
    this.depth = depth;
    return added;
  }

  async select(state: number, count: number): Promise<Row[]> {
    return this.#rows(`${CONDITIONS[state]} LIMIT ?`, Number.isFinite(count) ? count : -1);
  }

  async expiring(fromMs: number, toMs: number, count: number): Promise<Row[]> {
    const condition = "number IS NULL AND uncertain = 0 AND expires_ms BETWEEN ? AND ? LIMIT ?";
    const bounded = [fromMs, toMs].map((ms) => Math.min(Math.max(ms, 0), Number.MAX_SAFE_INTEGER));
    return this.#rows(condition, ...bounded, count);
  }

  async update(changed: readonly Row[], deleted: readonly Row[], epoch?: string): Promise<void> {
    const depth = { ...this.depth };
    this.#transact(() => {
      for (const { row, state, order, expiresMs = null } of changed) {
        this.#run(UPDATE, state === NUMBERED ? order : null, state === UNCERTAIN ? 1 : 0, expiresMs, row);
      }
      for (const { row, bytes } of deleted) {
        if (this.#all("DELETE FROM messages WHERE row = ? RETURNING row", row).length === 0) continue;
        depth.messages -= 1;
        depth.bytes -= bytes;
      }
      if (epoch)
        this.#run("INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", String(Number.parseInt(epoch, 16)));
    });
    this.depth = depth;
  }

  async missing(rows: readonly number[]): Promise<number[]> {
    return rows.filter((row) => this.#all("SELECT 1 FROM messages WHERE row = ?", row).length === 0);
  }

  async close(): Promise<void> {
    this.#statements.clear();
    this.#database?.close();
    this.#database = undefined;
  }

  /**
   * Creates the file with mode 0600 if it does not exist; SQLite gives the files beside it the same mode. An
   * existing file is never opened: closing it would release the locks that another part of the process has on it.
   */
  #create(): void {
    if (!this.#files || this.#path === ":memory:") return;
    try {
      this.#files.closeSync(this.#files.openSync(this.#path, "wx", 0o600));
    } catch {
      // The file exists, or SQLite reports the error.
    }
  }

  /** Removes the access of everybody but the owner: an older version made the files readable for all. */
  #restrict(): void {
    for (const path of [this.#path, `${this.#path}-wal`, `${this.#path}-shm`]) {
      const mode = this.#files?.statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
      if (mode & 0o077) {
        try {
          this.#files?.chmodSync(path, mode & 0o700);
        } catch {
          // It belongs to somebody else, who decides who reads it.
        }
      }
    }
  }

  #prepareFile(producer: string): void {
    // Other programs find the file locked. Each commit is on the disk when it returns.
    for (const setting of ["locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"]) {
      this.#database!.exec(`PRAGMA ${setting}`);
    }
    this.#transact(() => {
      const version = Number(this.#all("PRAGMA user_version")[0]!.user_version);
      if (version > VERSIONS.length) {
        throw new Error(
          `${this.#path} has version ${version} of the queue, this package knows ${VERSIONS.length}`,
        );
      }
      this.#version = version;
      this.#upgrade(PLAIN_VERSION);
      this.#run("INSERT OR IGNORE INTO meta VALUES ('producer', ?)", producer);
    });
    const sql = "SELECT count(*) AS messages, coalesce(sum(length(payload)), 0) AS bytes FROM messages";
    this.depth = { ...(this.#all(sql)[0] as unknown as Depth) };
  }

  /** Brings the file to a version. The last one is for the first binary payload: older programs read all others. */
  #upgrade(version: number): void {
    for (const step of VERSIONS.slice(this.#version, version)) this.#database!.exec(step);
    if (this.#version < version) this.#statements.clear();
    this.#version = Math.max(this.#version, version);
  }

  #rows(condition: string, ...values: (number | string)[]): Row[] {
    const stored = this.#all(`SELECT * FROM messages WHERE ${condition}`, ...values) as unknown as Stored[];
    return stored.map(rowOf);
  }

  #transact<T>(work: () => T): T {
    const database = this.#database;
    if (!database) throw new Error("the file is closed");
    const version = this.#version;
    database.exec("BEGIN IMMEDIATE");
    try {
      const result = work();
      database.exec("COMMIT");
      return result;
    } catch (error) {
      this.#version = version;
      try {
        database.exec("ROLLBACK");
      } catch {
        // After some errors SQLite has done so by itself.
      }
      throw error;
    }
  }

  /** Runs a statement; the row that it has inserted, if it has. */
  #run(sql: string, ...values: Value[]): number {
    return Number(this.#statement(sql).run(...values).lastInsertRowid);
  }

  #all(sql: string, ...values: Value[]): Record<string, unknown>[] {
    return this.#statement(sql).all(...values);
  }

  #statement(sql: string): Statement {
    const known = this.#statements.get(sql);
    if (known) return known;
    if (!this.#database) throw new Error("the file is closed");
    const statement = this.#database.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }
}

function rowOf(stored: Stored): Row {
  const {
    row,
    level: priority,
    number,
    topic,
    type,
    payload,
    key,
    expires_ms: expiresMs,
    uncertain,
    binary,
  } = stored;
  const entry = { type, payload: decoder.decode(payload), priority };
  const state = number !== null ? NUMBERED : uncertain ? UNCERTAIN : WAITING;
  return {
    ...entry,
    ...(binary && { binary: true as const }),
    ...(topic !== null && { topic }),
    ...(key !== null && { key }),
    ...(expiresMs !== null && state === WAITING && { expiresMs }),
    row,
    state,
    order: number ?? (uncertain ? 0 : waitingOrder(entry)),
    bytes: payload.length,
  };
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

const INSERT =
  "INSERT INTO messages (level, topic, type, payload, key, expires_ms) VALUES (?, ?, ?, ?, ?, ?)";
const INSERT_BINARY =
  "INSERT INTO messages (level, topic, type, payload, key, expires_ms, binary) VALUES (?, ?, ?, ?, ?, ?, 1)";
const UPDATE = "UPDATE messages SET number = ?, uncertain = ?, expires_ms = ? WHERE row = ?";

/** The rows of each state, in their order. */
const CONDITIONS = [
  "number IS NULL AND uncertain = 0 ORDER BY level DESC, row",
  "number IS NOT NULL ORDER BY number",
  "uncertain = 1 ORDER BY row",
];

/** What makes a file of each version from one of the version before. */
const VERSIONS = [
  `CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
   CREATE TABLE messages (
     row INTEGER PRIMARY KEY AUTOINCREMENT,
     level INTEGER NOT NULL,
     number INTEGER,
     topic TEXT,
     type TEXT NOT NULL,
     payload BLOB NOT NULL,
     key TEXT,
     expires_ms INTEGER
   );
   CREATE INDEX waiting ON messages (level DESC, row) WHERE number IS NULL;
   CREATE INDEX expiring ON messages (expires_ms) WHERE number IS NULL;
   CREATE UNIQUE INDEX numbered ON messages (number) WHERE number IS NOT NULL;
   PRAGMA user_version = 1;`,
  `ALTER TABLE messages ADD COLUMN uncertain INTEGER NOT NULL DEFAULT 0;
   DROP INDEX waiting;
   DROP INDEX expiring;
   CREATE INDEX waiting ON messages (level DESC, row) WHERE number IS NULL AND uncertain = 0;
   CREATE INDEX expiring ON messages (expires_ms) WHERE number IS NULL AND uncertain = 0;
   CREATE INDEX uncertain ON messages (row) WHERE uncertain = 1;
   PRAGMA user_version = 2;`,
  `ALTER TABLE messages ADD COLUMN binary INTEGER NOT NULL DEFAULT 0;
   PRAGMA user_version = 3;`,
];
/** The version of a file without binary payloads. */
const PLAIN_VERSION = 2;
