// The JSX factory of the built page; esbuild puts this import into every file that needs it.
export { Fragment, h as createNode } from "preact";
