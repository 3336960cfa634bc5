/** A reporter of Vitest: a line for each test that failed and then passed, which its JUnit file does not say. */

export default class {
  onTestCaseResult(test) {
    if (!test.diagnostic()?.flaky) return;
    const [error] = test.result().errors ?? [];
    const reason = (error?.message ?? "").split("\n")[0];
    console.log(`FLAKY ${test.module.relativeModuleId} ${test.fullName}: ${reason}`);
  }
}
