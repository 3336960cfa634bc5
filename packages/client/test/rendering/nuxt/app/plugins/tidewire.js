import { createTidewire } from "@tidewire/vue";

export default defineNuxtPlugin(({ vueApp }) => {
  vueApp.use(createTidewire({ url: useRuntimeConfig().public.url }));
});
