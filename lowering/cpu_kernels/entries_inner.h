// RunLinear and RunAttention by element type, included once per instruction set, inside of its namespace,
// after linear_inner.h and attention_inner.h.

template <typename Bf16, typename F32>
void RunNarrow(const Linear& linear, const TaskPool& pool) {
  if (linear.type == Type::kBf16) return Run<Bf16>(linear, pool);
  Run<F32>(linear, pool);
}

template <Narrow kNarrow>
void RunBytes(const Linear& linear, const TaskPool& pool) {
  RunNarrow<NarrowBf16Steps<kNarrow>, NarrowF32Steps<kNarrow>>(linear, pool);
}

void RunLinear(const Linear& linear, const TaskPool& pool) {
  if (linear.x_group) {
    if (linear.narrow == Narrow::kS4) return Run<NibbleIntegerSteps>(linear, pool);
    return Run<ByteIntegerSteps>(linear, pool);
  }
  switch (linear.narrow) {
    case Narrow::kS8: return RunBytes<Narrow::kS8>(linear, pool);
    case Narrow::kF8E4M3: return RunBytes<Narrow::kF8E4M3>(linear, pool);
    case Narrow::kF8E5M2: return RunBytes<Narrow::kF8E5M2>(linear, pool);
    case Narrow::kS4: return RunNarrow<NibbleBf16Steps, NibbleF32Steps>(linear, pool);
    case Narrow::kNone: break;
  }
  switch (linear.type) {
    case Type::kBf16: return Run<Bf16Steps>(linear, pool);
    case Type::kF16: return Run<F16Steps>(linear, pool);
    case Type::kF32: return Run<F32Steps>(linear, pool);
  }
}

template <typename Steps>
void RunAttentionOf(const Attention& attention, const TaskPool& pool) {
  if (attention.active * attention.group() < kFewQueries) {
    return AttentionStep<Steps>(attention, pool).Run();
  }
  PackedAttention<VectorProducts<Steps>>(attention, pool).Run();
}

void RunAttention(const Attention& attention, const TaskPool& pool) {
  // Narrow numbers are widened to bf16 or to f32.
  if (attention.numbers != CacheNumbers::kPlain && attention.type == Type::kF16) {
    return RunAttentionOf<F32Steps>(attention, pool);
  }
  switch (attention.type) {
    case Type::kBf16: return RunAttentionOf<Bf16Steps>(attention, pool);
    case Type::kF16: return RunAttentionOf<F16Steps>(attention, pool);
    case Type::kF32: return RunAttentionOf<F32Steps>(attention, pool);
  }
}
