// Not every Hermes has it, and loops by `for await` need it: docs/typescript-where.md tells a program to add it.
Symbol.asyncIterator ??= Symbol("Symbol.asyncIterator");
