#!/usr/bin/env bash
# Says loudly that no real model will answer, and how to get one that does.
cat <<'TEXT'
==============================================================================
  SIMULATED ENGINE: answers are made up and come at a simulated card's speed.
  A real engine and a real model:   make serve ENGINE=vllm
==============================================================================
TEXT
