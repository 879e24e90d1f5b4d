"""Wrong uses of every op, one a line: operand types and attributes."""

from __future__ import annotations

DOT = "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32"
CONV = 'dim_labels="b0f_0io->b0f" dtype=f32'
GATHER = "offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0]"
SCATTER = "update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0]"

SOLVE = "left_side=true lower=true unit_diagonal=false transpose_a=NO_TRANSPOSE"

# One line a mistake; every op has at least one.
WRONG = f"""
exponential s32[2]
rsqrt pred[2]
logistic s32[2]
exponential_minus_one s32[2]
reverse f32[2] dimensions=[1]
reverse f32[2,3] dimensions=[0,0]
call f32[2] to_apply=f results=[]
while condition=f body=g
while f32[2] condition= body=g
while f32[2] condition=f body=g trip_count=-2
conditional f32[] f32[2] branches=[f,g] takes=[1,0] results=[f32[2]]
conditional s32[1] branches=[f] takes=[0] results=[f32[2]]
conditional pred[] branches=[f] takes=[0] results=[f32[2]]
conditional s32[] branches=[] takes=[] results=[f32[2]]
conditional s32[] branches=[f,g] takes=[0] results=[f32[2]]
conditional s32[] f32[2] branches=[f,g] takes=[1,1] results=[f32[2]]
conditional s32[] f32[2] branches=[f,g] takes=[2,-1] results=[f32[2]]
conditional s32[] branches=[f,g] takes=[0,0] results=[]
custom_call f32[2] target="x" results=[]
custom_call f32[2] target="" results=[f32[2]]
hlo.opaque f32[2] opcode="" results=[f32[2]]
hlo.opaque f32[2] opcode="x" fields="0g" results=[f32[2]]
hlo.opaque f32[2] opcode="x" regions="0a," results=[f32[2]]
hlo.opaque f32[2] opcode="x" form="(x" results=[f32[2]]
hlo.opaque f32[2] opcode="x" form="(x->x)" results=[f32[2]]
hlo.opaque f32[2] opcode="x" form="xx->x" results=[f32[2]]
custom_call f32[2] target="x" more="f" results=[f32[2]]
log u8[2]
log_plus_one pred[2]
sqrt s32[2]
cbrt s32[2]
tanh s32[2]
tan s32[2]
erf s32[2]
ceil s32[2]
floor s32[2]
round_nearest_afz s32[2]
sign u8[2]
sign pred[2]
complex bf16[2] bf16[2]
complex f32[2] f64[2]
real s32[2]
imag pred[2]
atan2 c64[2] c64[2]
is_finite s32[2]
reduce_precision s32[2] exponent_bits=5 mantissa_bits=10
reduce_precision f32[2] exponent_bits=0 mantissa_bits=10
reduce_precision f32[2] exponent_bits=5 mantissa_bits=-1
power pred[2] pred[2]
power f32[2] s32[2]
remainder pred[2] pred[2]
atan2 s32[2] s32[2]
atan2 f32[2] f32[3]
not f32[2]
or f32[2] f32[2]
xor s32[2] s32[3]
shift_left pred[2] pred[2]
shift_right_logical f32[2] f32[2]
shift_right_arithmetic s32[2] u32[2]
popcnt pred[2]
count_leading_zeros f32[2]
cosine u8[2]
sine s32[B]
negate pred[2]
add f32[2] f32[3]
add f32[B] f32[S]
add f32[2]
subtract pred[2] pred[2]
remainder c64[2] c64[2]
subtract f32[2] bf16[2]
multiply f32[2] f32[2,1]
maximum c64[2] c64[2]
minimum f32[2] s32[2]
divide pred[2] pred[2]
divide f32[2] f32[3]
round_nearest_even s32[2]
abs u8[2]
abs pred[2]
clamp f32[3] f32[2] f32[]
clamp f32[] f32[2] bf16[]
clamp c64[] c64[2] c64[]
and f32[2] f32[2]
and pred[2] s32[2]
compare f32[2] f32[3] direction=EQ
select f32[2] f32[2] f32[2]
select pred[2] f32[2] f32[3]
select pred[3] f32[2] f32[2]
select pred[] f32[2] f32[2]
convert f32[2] f32[2] dtype=bf16
compare c64[2] c64[2] direction=LT
reduce c64[2] dimensions=[0] kind=maximum
sort c64[2] dimension=0
bitcast_convert u16[2] dtype=u64
bitcast_convert u16[] dtype=f32
bitcast_convert c64[2] dtype=f32
bitcast_convert pred[2] dtype=u16
bitcast_convert f6e2m3fn[2] dtype=u8
constant f32[2] value=f32[](1.0)
iota dtype=s32 shape=[2,3] dimension=2
iota dtype=s32 shape=[] dimension=0
iota dtype=pred shape=[2] dimension=0
broadcast_in_dim f32[4] shape=[2,4]
broadcast_in_dim f32[4] shape=[2,3] dimensions=[1]
broadcast_in_dim f32[4] shape=[2,4] dimensions=[2]
broadcast_in_dim f32[4,4] shape=[4,4] dimensions=[0,0]
broadcast_in_dim f32[B] shape=[2,S] dimensions=[1]
reshape f32[2,3] shape=[5]
reshape f32[B,4] shape=[4,S]
transpose f32[2,3] permutation=[0]
transpose f32[2,3] permutation=[0,0]
slice f32[4] start_indices=[0,0] limit_indices=[1,1]
slice f32[4] start_indices=[3] limit_indices=[2]
slice f32[4] start_indices=[0] limit_indices=[5]
slice f32[4] start_indices=[-1] limit_indices=[2]
slice f32[4] start_indices=[0] limit_indices=[2] strides=[0]
slice f32[B] start_indices=[0] limit_indices=[S] strides=[2]
concatenate dimension=0
concatenate f32[2] f32[2] dimension=1
concatenate f32[2,3] f32[2,4] dimension=0
concatenate f32[2] s32[2] dimension=0
concatenate f32[2] f32[2,1] dimension=0
pad f32[2] f32[] low=[0,0] high=[0,0]
pad f32[2] f32[] low=[-1] high=[-2]
pad f32[2] f32[] low=[0] high=[0] interior=[-1]
pad f32[2] f32[] low=[0] high=[0] interior=[1,1]
pad f32[2] s32[] low=[1] high=[0]
pad f32[2] f32[1] low=[1] high=[0]
dot_general f32[2,3] bf16[4,3] {DOT}
dot_general f32[2,3] f32[4,5] {DOT}
dot_general f32[2,B] f32[4,S] {DOT}
dot_general pred[2,3] pred[4,3] {DOT}
dot_general f32[2,3] f32[3] {DOT}
dot_general f32[2,3] f32[4,3] lhs_contracting_dims=[1] rhs_contracting_dims=[0,1] dtype=f32
dot_general f32[2,3] f32[4,3] lhs_contracting_dims=[1,1] rhs_contracting_dims=[0,1] dtype=f32
dot_general f32[2,3] f32[4,3] {DOT} lhs_batch_dims=[0] rhs_batch_dims=[0]
dot_general f32[2,3] f32[2,3] {DOT} lhs_batch_dims=[1] rhs_batch_dims=[1]
convolution f32[1,4,2] bf16[3,2,2] {CONV}
convolution pred[1,4,2] pred[3,2,2] {CONV}
convolution f32[1,4] f32[3,2,2] {CONV}
convolution f32[1,4,2] f32[3,2] {CONV}
convolution f32[1,4,3] f32[3,2,2] {CONV}
convolution f32[1,4,2] f32[0,2,2] {CONV}
convolution f32[1,4,2] f32[3,2,2] {CONV} window_strides=[0]
convolution f32[1,4,2] f32[3,2,2] {CONV} lhs_dilation=[0]
convolution f32[1,4,2] f32[3,2,2] {CONV} rhs_dilation=[-1]
convolution f32[1,4,2] f32[3,2,2] {CONV} low=[1,1]
convolution f32[1,4,2] f32[3,2,2] {CONV} low=[-3] high=[-2]
convolution f32[1,S,2] f32[3,2,2] {CONV} window_strides=[2]
convolution f32[1,4,2] f32[3,1,3] {CONV} feature_group_count=2
convolution f32[3,4,2] f32[3,2,2] {CONV} batch_group_count=2
convolution f32[2,4,2] f32[3,1,2] {CONV} feature_group_count=2 batch_group_count=2
convolution f32[2,4,2] f32[3,2,2] {CONV} feature_group_count=0
convolution f32[1,4,2] f32[3,2,2] dim_labels="b0f_0io" dtype=f32
convolution f32[1,4,2] f32[3,2,2] dim_labels="b0f_0oo->b0f" dtype=f32
convolution f32[1,4,2] f32[2,2] dim_labels="b0f_io->b0f" dtype=f32
reduce_window f32[4] f32[1] window_dimensions=[2] kind=add
reduce_window f32[4] s32[] window_dimensions=[2] kind=add
reduce_window f32[4] f32[] window_dimensions=[2,2] kind=add
reduce_window f32[4] f32[] window_dimensions=[2] window_strides=[1,1] kind=add
reduce_window f32[4] f32[] window_dimensions=[0] kind=add
reduce_window f32[4] f32[] window_dimensions=[2] kind=or
select_and_scatter f32[4] f32[3] f32[1] window_dimensions=[2] direction=GE kind=add
select_and_scatter f32[4] f32[2] f32[] window_dimensions=[2] direction=GE kind=add
select_and_scatter f32[4] s32[3] f32[] window_dimensions=[2] direction=GE kind=add
select_and_scatter f32[4] f32[3] f32[] window_dimensions=[2] low=[0,0] direction=GE kind=add
reduce_by f32[4] dimensions=[0] to_apply=f
reduce_by dimensions=[] to_apply=f
reduce_by f32[4] s32[3] f32[] s32[] dimensions=[0] to_apply=f
reduce_by f32[4] f32[1] dimensions=[0] to_apply=f
reduce_by f32[4] f32[] dimensions=[1] to_apply=f
map to_apply=f dtype=f32
map f32[4] f32[3] to_apply=f dtype=f32
map f32[4] to_apply= dtype=f32
reduce_window_by f32[4] s32[4] f32[] window_dimensions=[2] to_apply=f
reduce_window_by f32[4] s32[4] f32[] f32[] window_dimensions=[2] to_apply=f
reduce_window_by f32[4] f32[] window_dimensions=[2,2] to_apply=f
scatter_by f32[8,4] s32[3] {SCATTER} index_vector_dim=1 to_apply=f
scatter_by f32[8,4] s32[7,4] s32[3,1] f32[3,4] s32[3,4] {SCATTER} index_vector_dim=1 to_apply=f
scatter_by f32[8,4] s32[8,4] s32[3,1] f32[3,4] f32[3,4] {SCATTER} index_vector_dim=1 to_apply=f
sort_by dimension=0 to_apply=f
sort_by f32[4] s32[3] dimension=0 to_apply=f
sort_by f32[4] dimension=1 to_apply=f
triangular_solve f32[3,3] f32[3] {SOLVE}
triangular_solve f32[3,3] f32[2,3] {SOLVE}
triangular_solve f32[2,3,3] f32[3,2] {SOLVE}
triangular_solve f32[3,2] f32[3,2] {SOLVE}
triangular_solve f32[3,3] f64[3,2] {SOLVE}
triangular_solve s32[3,3] s32[3,2] {SOLVE}
cholesky f32[3] lower=true
cholesky f32[3,2] lower=true
cholesky s32[3,3] lower=false
fft f32[4] fft_type=FFT fft_length=[4]
fft c64[4] fft_type=RFFT fft_length=[4]
fft c64[4] fft_type=FFT fft_length=[5]
fft c64[4] fft_type=IRFFT fft_length=[4]
fft c64[4] fft_type=FFT fft_length=[4,4]
fft c64[4] fft_type=FFT fft_length=[]
fft c64[4] fft_type=FFT fft_length=[-4]
rng_bit_generator u64[3] algorithm=rng_three_fry dtype=u32 shape=[2]
rng_bit_generator u32[2] algorithm=rng_default dtype=u32 shape=[2]
rng_bit_generator u64[2] algorithm=rng_default dtype=pred shape=[2]
rng_bit_generator u64[2] algorithm=rng_default dtype=s4 shape=[2]
rng f32[] f32[1] distribution=rng_uniform dtype=f32 shape=[2]
rng s32[] f32[] distribution=rng_uniform dtype=f32 shape=[2]
rng s32[] s32[] distribution=rng_normal dtype=s32 shape=[2]
rng c64[] c64[] distribution=rng_uniform dtype=c64 shape=[2]
reduce f32[2] dimensions=[1] kind=add
reduce f32[2,3] dimensions=[0,0] kind=maximum
reduce f32[2] dimensions=[0] kind=or
gather f32[8,4] f32[3] {GATHER} index_vector_dim=1 slice_sizes=[1,4]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=2 slice_sizes=[1,4]
gather f32[8,4] s32[3,2] {GATHER} index_vector_dim=1 slice_sizes=[1,4]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=1 slice_sizes=[1]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=1 slice_sizes=[2,4]
gather f32[8,4] s32[3] {GATHER} index_vector_dim=1 slice_sizes=[1,5]
take f32[8,4] f32[3] dimension=0
take f32[8,4] s32[3,1] dimension=0
take f32[8,4] s32[3] dimension=2
take f32[8,4] s32[3] dimension=1 block=3
take f32[8,4] s32[3] dimension=1 block=0
take f32[8,B] s32[3] dimension=1
scatter f32[8,4] s32[3] f32[3,4] {SCATTER} index_vector_dim=1 kind=xor
scatter f32[8,4] f32[3] f32[3,4] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3] s32[3,4] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3] f32[2,4] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3] f32[3,5] {SCATTER} index_vector_dim=1
scatter f32[8,4] s32[3,2] f32[3,4] {SCATTER} index_vector_dim=1
scatter f32[8,4,2] s32[3] f32[3,4] {SCATTER} index_vector_dim=1
dynamic_slice f32[8,4] s32[] slice_sizes=[1,4]
dynamic_slice f32[8,4] s32[] f32[] slice_sizes=[1,4]
dynamic_slice f32[8,4] s32[] s32[1] slice_sizes=[1,4]
dynamic_slice f32[8,4] s32[] s32[] slice_sizes=[1,5]
dynamic_slice f32[8,4] s32[] s32[] slice_sizes=[1]
dynamic_update_slice f32[8,4] f32[1,4] s32[]
dynamic_update_slice f32[8,4] f32[4] s32[] s32[]
dynamic_update_slice f32[8,4] s32[1,4] s32[] s32[]
dynamic_update_slice f32[8,4] f32[9,4] s32[] s32[]
dynamic_update_slice f32[8,4] f32[1,4] s32[] f32[]
all_reduce f32[2] kind=add replica_groups=[]
all_reduce f32[2] kind=add replica_groups=[[0,2]]
all_reduce f32[2] kind=add replica_groups=[[0,1],[1,2]]
all_reduce c64[2] kind=maximum replica_groups=[[0,1]]
all_gather f32[2] dimension=1 replica_groups=[[0,1]]
all_gather f32[2] dimension=0 replica_groups=[[0,1],[2]]
all_gather f32[2] dimension=0 replica_groups=[[0,0]]
all_gather f32[0] dimension=0 replica_groups=[[0,1]]
reduce_scatter f32[3] kind=add dimension=0 replica_groups=[[0,1]]
reduce_scatter f32[B] kind=add dimension=0 replica_groups=[[0,1]]
reduce_scatter f32[2] kind=add dimension=2 replica_groups=[[0,1]]
reduce_scatter f32[2] kind=add dimension=0 replica_groups=[[0],[1,2]]
reduce_scatter f32[0] kind=add dimension=0 replica_groups=[[0,1]]
reduce_scatter c64[2] kind=maximum dimension=0 replica_groups=[[0,1]]
all_to_all f32[3,2] split_dimension=0 concat_dimension=1 replica_groups=[[0,1]]
all_to_all f32[2,2] split_dimension=0 concat_dimension=2 replica_groups=[[0,1]]
all_to_all f32[2,2] split_dimension=-1 concat_dimension=1 replica_groups=[[0,1]]
all_to_all f32[2,2] split_dimension=0 concat_dimension=1 replica_groups=[]
collective_permute f32[2] source_target_pairs=[[0,1,2]]
collective_permute f32[2] source_target_pairs=[[0,1],[0,2]]
collective_permute f32[2] source_target_pairs=[[0,2],[1,2]]
sort dimension=0
sort f32[2] dimension=1
sort f32[2,3] s32[3] dimension=0
top_k c64[2] k=1
top_k f32[] k=0
top_k f32[2,3] k=4
top_k f32[2,3] k=-1
embedding f32[16] s32[2]
embedding f32[16,4] f32[2]
rms_norm s32[2,4] s32[4] epsilon=1e-05
rms_norm f32[] f32[] epsilon=1e-05
rms_norm bf16[2,4] s32[4] epsilon=1e-05
rms_norm f32[2,4] f32[2] epsilon=1e-05
layer_norm s32[2,4] f32[4] f32[4] epsilon=1e-05
layer_norm f32[2,4] f32[2] f32[2] epsilon=1e-05
layer_norm f32[2,4] bf16[4] f32[4] epsilon=1e-05
silu s32[2]
gelu s32[2] approximate=tanh
rope_table f32[2,3] inv_freq=f32[2](1.0,0.1)
rope_table s32[2,3] inv_freq=f32[](1.0)
rope_table s32[2,3] inv_freq=bf16[2](1.0,0.1)
rope f32[2,3,2,5] f32[2,3,3] f32[2,3,3]
rope f32[2,3,2] f32[2,3,2] f32[2,3,2]
rope f32[2,3,2,4] f32[2,3,4] f32[2,3,4]
rope bf16[2,3,2,4] bf16[2,3,2] f32[2,3,2]
rope f32[2,3,2,4] f32[2,3,2] f32[3,3,2]
rope s32[2,3,2,4] f32[2,3,2] f32[2,3,2]
key_positions f32[2] attended=8
key_positions s32[2,3] attended=8
attention_mask f32[2,3] s32[2,8]
attention_mask s32[2] s32[2,8]
attention_mask s32[2,3] s32[3,8]
attention_mask s32[2,3] s32[2]
attention_mask s32[2,3] s32[2,8] window=-1
attention_mask s32[2,3] s32[2,8] chunk=-1
key_distance f32[2,3] attended=8
key_distance s32[2] attended=8
cache_read f32[2,8,2] s32[2] attended=4
cache_read f32[2,8,2,4] s32[2,1] attended=4
cache_read f32[2,8,2,4] f32[2] attended=4
cache_read f32[4,8,2,4] s32[2] attended=4 rows=in_place
cache_read f32[4,8,2,4] s32[2] attended=9
cache_read f32[4,8,2,4] s32[2] attended=4 parts=3
cache_read f32[4,8,2,4] s32[2] attended=6 parts=4
cache_read f32[4,8,2,4] s32[2] attended=4 parts=0
kv_update f32[4,8,2,4] f32[2,1,2,5] s32[2] s32[2,1]
kv_update f32[4,8,2,4] bf16[2,1,2,4] s32[2] s32[2,1]
kv_update f32[4,8,2,4] f32[2,1,2,4] s32[3] s32[2,1]
kv_update f32[4,8,2,4] f32[2,1,2,4] s32[2] s32[2,2]
kv_update f32[4,8,2,4] f32[2,1,2,4] s32[2] s32[2,1] rows=in_place
kv_move f32[4,8,2] s32[2] s32[2,3] s32[2] s32[2,3]
kv_move f32[4,8,2,4] s32[3] s32[2,3] s32[2] s32[2,3]
kv_move f32[4,8,2,4] s32[2] f32[2,3] s32[2] s32[2,3]
kv_move f32[4,8,2,4] s32[2] s32[2,3] s32[1] s32[2,3]
kv_move f32[4,8,2,4] s32[2] s32[2,3] s32[2] s32[2,4]
tree_slots f32[2,3]
tree_slots s32[2]
tree_positions s32[2,3] s32[3,8]
tree_positions s32[2,3] f32[2,8]
tree_mask s32[2,3] s32[2,8] s32[2,3,4]
tree_mask s32[2,3] s32[2,8] pred[2,3,3]
tree_mask s32[2,3] s32[3,8] s32[2,3,3]
tree_mask s32[2,3] s32[2,8] s32[2,3,3] window=-1
tree_mask s32[2,3] s32[2,8] s32[2,3,3] chunk=-1
attention f32[2,1,4,8] f32[2,6,3,8] f32[2,6,3,8] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,1,8] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] bf16[2,6,2,8] bf16[2,6,2,8] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,6,1] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] f32[2,1,6] scale=0.125
attention s32[2,1,4,8] s32[2,6,2,8] s32[2,6,2,8] pred[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[2] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[2] f32[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] f32[1,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] s32[2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] f32[4] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] f32[2,4,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[2,1,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[2,4,1,6] f32[2] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,2,1,6] scale=0.125
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] scale=0.125 softcap=-1.0
attention f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] scale=0.125
attention_part f32[2,1,4,8] f32[2,6,3,8] f32[2,6,3,8] pred[2,1,6] scale=0.125
attention_part f32[2,1,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,1,6] f32[4] scale=0.125
last_token f32[2,3] s32[2,3] s32[2]
last_token s32[2,3,4] s32[2,3] s32[2]
last_token f32[2,3,4] s32[2,4] s32[2]
last_token f32[2,3,4] s32[2,3] s32[3]
rms_norm_quantize s32[2,4] f32[4] epsilon=1e-05 dtype=s8 limit=127.0
rms_norm_quantize f32[] f32[] epsilon=1e-05 dtype=s8 limit=127.0
rms_norm_quantize f32[2,4] f32[2] epsilon=1e-05 dtype=s8 limit=127.0
rms_norm_quantize f32[2,4] f32[4] epsilon=1e-05 dtype=s4 limit=7.0
rms_norm_quantize f32[2,4] f32[4] epsilon=1e-05 dtype=f8e4m3 limit=448.0
accept s32[2] s32[2] s32[2,3,4] f32[2,3,4] s32[2,2,5] f32[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2] s32[2,3] f32[2,3] s32[2,2,5] f32[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2] s32[2,3,4] f32[2,3,4] s32[2,5] f32[2,5] f32[2,3,2]
accept s32[2,3] s32[2] s32[2,3,4] f32[2,3,4] s32[2,2,5] f32[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2,1] s32[2,3,4] f32[2,3,4] s32[2,2,5] f32[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2] f32[2,3,4] f32[2,3,4] s32[2,2,5] f32[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2] s32[2,3,4] f32[2,3,5] s32[2,2,5] f32[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2] s32[2,3,4] f32[2,3,4] s32[2,3,5] f32[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2] s32[2,3,4] f32[2,3,4] s32[2,2,5] bf16[2,2,5] f32[2,3,2]
accept s32[2,2] s32[2] s32[2,3,4] f32[2,3,4] s32[2,2,5] f32[2,2,5] f32[2,3]
experts s32[2,8] s32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=f32
experts f32[] s32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=f32
experts f32[2,8] s32[2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=f32
experts f32[2,8] u32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=f32
experts f32[2,8] s32[3,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=f32
experts f32[2,8] s32[2,2] f32[2,3] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=f32
experts f32[2,8] s32[2,2] bf16[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[6,8] f32[6,8] f32[4,8,6] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[4,6,7] f32[4,6,7] f32[4,8,6] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[4,6,8] bf16[4,6,8] f32[4,8,6] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,48] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,5] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[3,8,6] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] f32[4,6] dtype=f32
experts f32[2,8] s32[2,2] f32[2,2] f32[4,6,8] f32[4,6,8] f32[4,8,6] dtype=s32
quantize s32[2,3] dtype=s8 dimensions=[1] limit=127.0
quantize f32[2,3] dtype=u8 dimensions=[1] limit=127.0
quantize f32[2,3] dtype=bf16 dimensions=[1] limit=127.0
quantize f32[2,3] dtype=s8 dimensions=[2] limit=127.0
quantize f32[2,3] dtype=s8 dimensions=[1,1] limit=127.0
quantize f32[2,3] dtype=s4 dimensions=[1] limit=7.5 block=[1,2]
quantize f32[2,3] dtype=s4 limit=7.5 block=[2]
quantize f32[2,3] dtype=s8 dimensions=[1] limit=128.5
quantize f32[2,3] dtype=f8e4m3fn dimensions=[1] limit=0.0
dequantize s16[2,3] f32[2,1] block=[1,3] dtype=f32
dequantize s8[2,3] f32[2,1] block=[1,3] dtype=s8
dequantize s8[2,3] f32[2,1] block=[3] dtype=f32
dequantize s8[2,3] f32[2,1] block=[1,0] dtype=f32
dequantize s8[2,3] s32[2,1] block=[1,3] dtype=f32
dequantize s8[2,3] f32[2,1] block=[1,2] dtype=f32
dequantize s8[2,3] f32[2,2] s8[2,1] block=[1,2] dtype=f32
dequantize s8[B,3] f32[1,2] block=[2,2] dtype=f32
quantize_rows s32[2,3] element=s8 limit=127.0
quantize_rows f32[] element=s8 limit=127.0
quantize_rows f32[2,3] element=u8 limit=127.0
quantize_rows f32[2,3] element=bf16 limit=127.0
quantize_rows f32[2,3] element=f8e4m3 limit=241.0
dequantize_rows s8[2,7] element=s8 dtype=f32
dequantize_rows u8[2,4] element=s8 dtype=f32
dequantize_rows u8[] element=s8 dtype=f32
dequantize_rows u8[2,7] element=s16 dtype=f32
dequantize_rows u8[2,7] element=s8 dtype=f8e4m3
"""
