/** Filters of subscriptions (PROTOCOL 19.8), as far as a test needs them: without the limits of the server. */

type Test = (value: unknown, isThere: boolean) => boolean;
type Filter = (payload: unknown) => boolean;

/** Compiles a filter. Throws an `Error` that names the part of it that the server would refuse. */
export function compileFilter(filter: unknown): Filter {
  const tests = Object.entries(asObject(filter, "a filter")).map(([name, operand]) => member(name, operand));
  return (payload) => tests.every((test) => test(payload));
}

function member(name: string, operand: unknown): Filter {
  if (name === "$and" || name === "$or") {
    if (!Array.isArray(operand) || !operand.length) throw new Error(`${name} needs filters`);
    const filters = operand.map(compileFilter);
    return name === "$and"
      ? (payload) => filters.every((one) => one(payload))
      : (payload) => filters.some((one) => one(payload));
  }
  if (name === "$not") {
    const filter = compileFilter(operand);
    return (payload) => !filter(payload);
  }
  if (name.startsWith("$")) throw new Error(`${name} is no operator of a filter`);
  const path = name.split(".");
  const test = operators(operand);
  return (payload) => {
    let value = payload;
    for (const step of path) {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, step))
        return test(undefined, false);
      value = (value as Record<string, unknown>)[step];
    }
    return test(value, true);
  };
}

function operators(operand: unknown): Test {
  const isPlain = typeof operand !== "object" || operand === null || Array.isArray(operand);
  const names = isPlain ? [] : Object.keys(operand);
  if (!names.some((name) => name.startsWith("$"))) return operator("$eq", operand);
  const tests = Object.entries(operand as object).map(([name, value]) => operator(name, value));
  return (value, isThere) => tests.every((test) => test(value, isThere));
}

function operator(name: string, operand: unknown): Test {
  const where =
    (test: (value: unknown) => boolean): Test =>
    (value, isThere) =>
      isThere && test(value);
  const text = (test: (value: string, operand: string) => boolean): Test => {
    if (typeof operand !== "string") throw new Error(`${name} needs a text`);
    return where((value) => typeof value === "string" && test(value, operand));
  };
  const order = (test: (difference: number) => boolean): Test => {
    if (typeof operand !== "string" && typeof operand !== "number")
      throw new Error(`${name} needs a number or a text`);
    return where(
      (value) => typeof value === typeof operand && test(compare(value as string, operand as string)),
    );
  };
  switch (name) {
    case "$eq":
      return where((value) => isEqual(value, operand));
    case "$ne":
      return not(operator("$eq", operand));
    case "$gt":
      return order((difference) => difference > 0);
    case "$gte":
      return order((difference) => difference >= 0);
    case "$lt":
      return order((difference) => difference < 0);
    case "$lte":
      return order((difference) => difference <= 0);
    case "$in": {
      if (!Array.isArray(operand)) throw new Error("$in needs an array");
      return where((value) => operand.some((one) => isEqual(value, one)));
    }
    case "$nin":
      return not(operator("$in", operand));
    case "$regex": {
      if (typeof operand !== "string") throw new Error("$regex needs a text");
      const expression = new RegExp(operand, "u");
      return where((value) => typeof value === "string" && expression.test(value));
    }
    case "$contains":
      return where((value) =>
        Array.isArray(value)
          ? value.some((one) => isEqual(one, operand))
          : typeof value === "string" && typeof operand === "string" && value.includes(operand),
      );
    case "$startswith":
      return text((value, start) => value.startsWith(start));
    case "$endswith":
      return text((value, end) => value.endsWith(end));
    case "$exists":
      if (typeof operand !== "boolean") throw new Error("$exists needs true or false");
      return (_, isThere) => isThere === operand;
    case "$not":
      return not(operators(asObject(operand, "$not")));
    default:
      throw new Error(`${name} is no operator of a filter`);
  }
}

function not(test: Test): Test {
  return (value, isThere) => !test(value, isThere);
}

/** Texts by code point, numbers by value. */
function compare(left: string | number, right: string | number): number {
  if (typeof left === "number") return left - (right as number);
  const [one, other] = [[...left], [...(right as string)]];
  for (let index = 0; index < one.length && index < other.length; index++) {
    const difference = one[index]!.codePointAt(0)! - other[index]!.codePointAt(0)!;
    if (difference) return difference;
  }
  return one.length - other.length;
}

function isEqual(left: unknown, right: unknown): boolean {
  if (typeof left !== "object" || typeof right !== "object" || !left || !right) return left === right;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const [names, others] = [Object.keys(left), Object.keys(right)];
  const field = (value: object, name: string) => (value as Record<string, unknown>)[name];
  return (
    names.length === others.length &&
    names.every((name) => Object.hasOwn(right, name) && isEqual(field(left, name), field(right, name)))
  );
}

function asObject(value: unknown, what: string): object {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Error(`${what} is an object`);
  return value;
}
