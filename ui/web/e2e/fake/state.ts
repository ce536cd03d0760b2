// The parts of the fake server's answers that tests change: engine, GPU, policy, configuration.
import type {
  ConfigStatus,
  CountWindow,
  EngineStatus,
  GPU,
  LogLine,
  PolicyInfo,
  PolicyRevision,
  PoolStatus,
  Status,
} from "../../src/api";
import type { World } from "./world";

const UNSET = "0001-01-01T00:00:00Z";
const GIB = 1024 ** 3;
const SECOND_NS = 1e9;

const iso = (t: number) => new Date(t).toISOString();

export const POLICY_TEXT = `# Refuse when either the KV cache or the engine's own queue is full.
policy: dual-gate
description: one GPU, coding agents
on_stale: ledger
params:
  max_waiting: 4
  max_kv_used: 0.9
hold:
  max_wait: 0s
  max_requests: 0
retry_after:
  min: 1s
  max: 60s
`;

export function engineReady(now: number): EngineStatus {
  const started = now - 11_600_000;
  const phase = (name: string, at: number, s: number, last: number) => ({
    name,
    began: iso(started + at * 1000),
    took_ns: s * SECOND_NS,
    last_took_ns: last * SECOND_NS,
  });
  return {
    kind: "vllm",
    simulated: false,
    state: "ready",
    since: iso(now - 11_520_000),
    text: "The engine serves.",
    pid: 48_213,
    started: iso(started),
    ready_at: iso(now - 11_520_000),
    restarts: 0,
    restart_at: UNSET,
    expected_ready_in_ns: 0,
    model: "Qwen/Qwen2.5-0.5B-Instruct",
    max_model_len: 32_768,
    version: "0.32.0",
    kv_capacity_tokens: 262_144,
    slots: 48,
    command: ["vllm", "serve", "Qwen/Qwen2.5-0.5B-Instruct", "--uds", "/run/admitd/engine.sock", "--api-key", "***"],
    address: "unix:/run/admitd/engine.sock",
    phases: [
      phase("launched", 0, 1.2, 1.1),
      phase("engine_init", 1.2, 9.4, 9.1),
      phase("weights", 10.6, 21.7, 24.3),
      phase("compile", 32.3, 18.2, 17.9),
      phase("kv_cache", 50.5, 3.1, 3.2),
      phase("graphs", 53.6, 15.8, 16.4),
      phase("warmup", 69.4, 6.6, 6.2),
      phase("http", 76, 2.9, 3),
      phase("probe", 78.9, 1.1, 1),
    ],
  };
}

export function engineLoading(now: number): EngineStatus {
  const e = engineReady(now);
  const started = now - 24_000;
  return {
    ...e,
    state: "loading",
    since: iso(started),
    phase: "weights",
    started: iso(started),
    ready_at: UNSET,
    text: "The engine is loading the model's weights.",
    expected_ready_in_ns: 52 * SECOND_NS,
    phases: (e.phases ?? []).slice(0, 3).map((p, i) => ({
      ...p,
      began: iso(started + ([0, 1200, 10_600][i] ?? 0)),
      took_ns: i === 2 ? 0 : p.took_ns,
    })),
  };
}

export function engineFailed(now: number): EngineStatus {
  return {
    ...engineReady(now),
    state: "failed",
    since: iso(now - 4000),
    ready_at: UNSET,
    pid: 0,
    restarts: 2,
    restart_at: iso(now + 9000),
    text: "The engine ended by itself.",
    last_exit: {
      at: iso(now - 4000),
      text: "exit status 1",
      wanted: false,
      cause: "CUDA out of memory while the KV cache was being sized",
      hint: "Lower --gpu-memory-utilization or stop the other process that holds GPU memory.",
      tail: [
        "(EngineCore pid=48260) INFO Available KV cache memory: -1.32 GiB",
        "(EngineCore pid=48260) ERROR EngineCore failed to start.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
      ],
    },
  };
}

export function gpuOK(kv: number): GPU {
  return {
    state: "ok",
    driver: "580.95.05",
    age_ms: 240,
    devices: [
      {
        index: 0,
        name: "NVIDIA H100 80GB HBM3",
        uuid: "GPU-5f0c2a1e-7d3b-4f6a-9b21-0c8e4d1a7f33",
        state: "ok",
        memory_total_bytes: 79.6 * GIB,
        memory_used_bytes: 71.4 * GIB + kv,
        memory_free_bytes: 8.2 * GIB,
        unified_memory: false,
        utilization: 0.83,
        power_watts: 512,
        temperature_celsius: 61,
        throttle: [],
        ecc_uncorrected: 0,
        last_xid: null,
        processes: [
          { pid: 48_260, used_bytes: 68.9 * GIB, ours: true },
          { pid: 9_117, used_bytes: 2.5 * GIB, ours: false },
        ],
      },
    ],
  };
}

export const GPU_NONE: GPU = {
  state: "unavailable",
  why: "libnvidia-ml.so.1 is not on this machine; install the NVIDIA driver to see GPU memory",
  age_ms: null,
  devices: [],
};

export function window(world: World, seconds: number): CountWindow {
  const c = world.counts(seconds);
  const meant = c.ended + (c.deferred + c.rejected) * 0.3;
  return {
    seconds,
    arrivals: c.arrivals,
    admitted: c.admitted,
    deferred: c.deferred,
    rejected: c.rejected,
    ended: c.ended,
    slo_met: c.met,
    goodput: meant > 0 ? c.met / meant : null,
    ttft_p50_ms: 210,
    ttft_p95_ms: 640,
    tpot_p50_ms: 21,
    tpot_p95_ms: 34,
  };
}

export class State {
  engine: EngineStatus;
  gpu: GPU | null = null;
  policy: PolicyInfo;
  policyText = POLICY_TEXT;
  history: PolicyRevision[];
  config: ConfigStatus = { file: "/etc/admitd/admitd.yaml", last_reload_ok: true, last_reload_at: null };
  logs: LogLine[] = [];
  scrapeIntervalMs = 500;
  simulated = false;

  constructor(now: number) {
    this.engine = engineReady(now);
    this.policy = {
      name: "dual-gate",
      rev: "a1b2c3d4e5f6",
      file: "/etc/admitd/policy.yaml",
      at: iso(now - 744_000),
      source: "file",
    };
    this.history = [
      { ...this.policy, text: POLICY_TEXT },
      {
        name: "kv-threshold",
        rev: "77e01f9c2b40",
        at: iso(now - 90_000_000),
        source: "start",
        text: "policy: kv-threshold\nparams:\n  max_kv_used: 0.95\n",
      },
    ];
    const words = [
      "INFO 11-30 02:58:11 [core.py:82] Initializing a V1 LLM engine (v0.32.0)",
      "INFO 11-30 02:58:21 [default_loader.py:291] Loading weights took 18.42 seconds",
      "WARNING 11-30 02:58:22 [cache.py:214] The chunked prefill budget is small for this model",
      "INFO 11-30 02:58:41 [kv_cache_utils.py:1087] GPU KV cache size: 262,144 tokens",
      "INFO 11-30 02:58:57 [gpu_model_runner.py:3034] Graph capturing finished in 16 secs, took 0.61 GiB",
      "INFO 11-30 02:59:04 [api_server.py:1912] Starting vLLM API server on unix:/run/admitd/engine.sock",
      "ERROR 11-30 02:59:09 [serving_chat.py:271] <b>not markup</b> & <script>alert(1)</script> are only text",
    ];
    for (let i = 0; i < 120; i++) {
      this.logs.push({ seq: i + 1, at: iso(now - (120 - i) * 800), text: words[i % words.length] ?? "" });
    }
  }

  pool(world: World): PoolStatus {
    const now = world.now;
    const g = world.gauges();
    return {
      model: "Qwen2.5-0.5B",
      aliases: ["default"],
      engine: { ...this.engine, simulated: this.simulated, kind: this.simulated ? "sim" : this.engine.kind },
      policy: this.policy,
      ledger: {
        at: iso(now),
        in_flight: g[4] ?? 0,
        held: 0,
        reserved_tokens: g[22] ?? 0,
        slots: world.slots,
        arrivals: 0,
        admitted: 0,
        deferred: 0,
        rejected: 0,
        settled: 0,
        release_rate: 4.2,
      },
      signals: [],
      scrape: {
        seq: 4120,
        age_ms: g[18] ?? null,
        took_ms: 4,
        failures: 0,
        engine: "vllm",
        version: "0.32.0",
        interval_ms: this.scrapeIntervalMs,
      },
      gpu: this.gpu ?? (world.gpu ? gpuOK(0) : GPU_NONE),
      windows: [window(world, 60), window(world, 300)],
    };
  }

  status(world: World, bootId: string, startedAt: number, clients: number): Status {
    return {
      version: "0.1.0",
      boot_id: bootId,
      now: iso(world.now),
      started_at: iso(startedAt),
      gate_address: "127.0.0.1:8080",
      ready: this.engine.state === "ready",
      pools: [this.pool(world)],
      config: this.config,
      websocket_clients: clients,
      frames_dropped: 0,
    };
  }
}
