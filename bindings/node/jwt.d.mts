export * from "./jwt.js";
