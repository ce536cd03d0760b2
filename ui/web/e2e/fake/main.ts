// `npm run dev`: the built page over the fake pool. Arguments: --port N, --no-gpu, --simulated, --rate N.
import { Fake } from "./server";

const argument = (name: string): string | undefined => {
  const i = process.argv.indexOf(`--${name}`);
  return i < 0 ? undefined : (process.argv[i + 1] ?? "");
};

const fake = new Fake({ gpu: !process.argv.includes("--no-gpu"), rate: Number(argument("rate") ?? 9) });
fake.state.simulated = process.argv.includes("--simulated");
await fake.listen(Number(argument("port") ?? 8091));
fake.run();
console.log(`made-up data at ${fake.url}`);
