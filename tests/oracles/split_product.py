"""A product of weights, and its program for two ranks, which have a half of the sum each."""

from __future__ import annotations

WHOLE = """\
module @m level=logical {
  input %x : f32[2,8]
  weight %w : f32[4,8]
  output %y : f32[2,4]
}

func @main phase=main {
  arg %x : f32[2,8]
  arg %w : f32[4,8]
  %0 = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,4]
  return y = %0
}
"""
SPLIT = """\
module @m level=target mesh=tp:2 {
  input %rank : s32[1]
  input %x : f32[2,8]
  weight %w : f32[4,8]
  output %y : f32[2,4]
}

func @main phase=main {
  arg %rank : s32[1]
  arg %x : f32[2,8]
  arg %w : f32[4,8]
  %r = reshape(%rank) shape=[] : s32[]
  %four = constant() value=s32[](4) : s32[]
  %zero = constant() value=s32[](0) : s32[]
  %start = multiply(%r, %four) : s32[]
  %0 = dynamic_slice(%x, %zero, %start) slice_sizes=[2,4] : f32[2,4]
  %1 = dynamic_slice(%w, %zero, %start) slice_sizes=[4,4] : f32[4,4]
  %2 = dot_general(%0, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,4]
  %3 = all_reduce(%2) kind=add replica_groups=[[0,1]] : f32[2,4]
  return y = %3
}
"""
