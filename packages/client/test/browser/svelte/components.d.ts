/** Components, which the compiler of Svelte reads and that of TypeScript does not. */
declare module "*.svelte" {
  const component: import("svelte").Component<any>;
  export default component;
}
