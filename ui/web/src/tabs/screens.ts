// The screens that are fetched after the live view has come up.
export { Engine } from "./engine";
export { Policy } from "./policy";
