// Of Node.js only what these programs use: its types need no package here.
declare module "node:assert/strict" {
  const assert: {
    (holds: unknown, message?: string): asserts holds;
    equal(one: unknown, other: unknown): void;
    notEqual(one: unknown, other: unknown): void;
    deepEqual(one: unknown, other: unknown): void;
    rejects(call: Promise<unknown>, is: (error: unknown) => boolean): Promise<void>;
  };
  export default assert;
}
declare const process: { argv: string[] };
