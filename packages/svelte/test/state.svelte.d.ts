/** A state that components follow. */
export declare function stateOf<T>(value: T): T;
