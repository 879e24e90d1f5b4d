"""Field numbers of XLA's HLO protobuf schema, by message: the part that graphgen uses.

Numbers and enumeration values are those of the public schema, from the oldest that carries HLO in
this form to the newest; a file with other fields is read, and they are left alone.
"""

from __future__ import annotations


class WrapperField:
    """HloProto: a module together with its buffer assignment, as XLA dumps it."""

    MODULE = 1
    BUFFER_ASSIGNMENT = 3


class SnapshotField:
    """HloSnapshot and HloUnoptimizedSnapshot: a module with the arguments of a run.

    Those of the latter are messages, one a partition, with the arguments in ``OF_PARTITION``.
    """

    ARGUMENTS = 2
    OF_PARTITION = 1


class ModuleField:
    """HloModuleProto."""

    NAME = 1
    ENTRY_NAME = 2
    COMPUTATIONS = 3
    PROGRAM_SHAPE = 4
    ID = 5
    ENTRY_ID = 6
    SCHEDULE = 7
    ALIAS = 8
    CROSS_PROGRAM_PREFETCHES = 10
    IS_DYNAMIC = 11
    OUTPUT_SHARDING = 12
    PARAMETER_SHARDINGS = 14
    DEVICE_ASSIGNMENT = 15
    AUTO_SPMD = 16
    STACK_FRAMES = 17
    DONORS = 18
    FRONTEND_ATTRIBUTES = 19
    PJRT_ID = 23
    # Not XLA's, which passes over them: an HloModuleConfigProto, which XLA keeps outside of the
    # module, and a map of the attributes of a text that no schema has a field for.
    CONFIG = 1000
    TEXT_ATTRIBUTES = 1001


class ConfigField:
    """HloModuleConfigProto."""

    REPLICA_COUNT = 4
    NUM_PARTITIONS = 5


class ComputationField:
    """HloComputationProto."""

    NAME = 1
    INSTRUCTIONS = 2
    PROGRAM_SHAPE = 4
    ID = 5
    ROOT_ID = 6
    IS_FUSION = 7
    EXECUTION_THREAD = 8


class ScheduleField:
    """HloScheduleProto: a map from computations to sequences of instructions."""

    SEQUENCES = 1
    COMPUTATION = 1
    SEQUENCE = 2
    INSTRUCTION_IDS = 1


class ProgramShapeField:
    """ProgramShapeProto."""

    PARAMETERS = 1
    RESULT = 2
    PARAMETER_NAMES = 3


class InstructionField:
    """HloInstructionProto."""

    NAME = 1
    OPCODE = 2
    SHAPE = 3
    METADATA = 7
    LITERAL = 8
    PARAMETER_NUMBER = 9
    FUSION_KIND = 11
    TUPLE_INDEX = 13
    DIMENSIONS = 14
    WINDOW = 15
    CONVOLUTION = 16
    SLICES = 17
    EXPONENT_BITS = 18
    MANTISSA_BITS = 19
    DYNAMIC_SLICE_SIZES = 20
    PADDING = 21
    DISTRIBUTION = 23
    EPSILON = 24
    FEATURE_INDEX = 25
    CHANNEL_ID = 26
    CUSTOM_CALL_TARGET = 28
    DOT = 30
    FFT_TYPE = 31
    FFT_LENGTH = 32
    GATHER = 33
    GATHER_SLICE_SIZES = 34
    ID = 35
    OPERAND_IDS = 36
    CONTROL_PREDECESSOR_IDS = 37
    CALLED_IDS = 38
    SHARDING = 40
    BACKEND_CONFIG = 43
    ALL_REDUCE_ID = 45
    SCATTER = 48
    REPLICA_GROUPS = 49
    FEATURE_GROUP_COUNT = 50
    PRECISION = 51
    SOURCE_TARGET_PAIRS = 52
    CONSTRAIN_LAYOUT = 56
    OPERAND_SHAPES_WITH_LAYOUT = 57
    BATCH_GROUP_COUNT = 58
    TRIANGULAR_SOLVE = 59
    IS_STABLE = 60
    PARAMETER_REPLICATION = 61
    CHOLESKY = 62
    COMPARISON_DIRECTION = 63
    CUSTOM_CALL_HAS_SIDE_EFFECT = 65
    DELTA = 66
    INDICES_ARE_SORTED = 67
    FRONTEND_ATTRIBUTES = 68
    UNIQUE_INDICES = 69
    RNG_ALGORITHM = 70
    USE_GLOBAL_DEVICE_IDS = 71
    COMPARISON_TYPE = 72
    CROSS_PROGRAM_PREFETCH = 73
    OUTPUT_OPERAND_ALIASING = 74
    CUSTOM_CALL_SCHEDULE = 76
    CUSTOM_CALL_API_VERSION = 77
    K = 81
    STATISTICS = 82
    LARGEST = 85
    COLLECTIVE_DEVICE_LIST = 87
    ORIGINAL_VALUE = 88
    IS_COMPOSITE = 89
    RESULT_ACCURACY = 91
    IOTA_DEVICE_LIST = 92
    MESH_DEVICE_LIST = 93


class RareField:
    """Fields of HloInstructionProto that no op of the IR has."""

    OUTFEED_CONFIG = 22
    INFEED_CONFIG = 27
    OUTFEED_SHAPE = 29
    IS_HOST_TRANSFER = 47
    DOMAIN_ENTRY_SHARDING = 54
    DOMAIN_EXIT_SHARDING = 55
    PADDING_TYPE = 75
    ASYNC_EXECUTION_THREAD = 79
    CROSS_PROGRAM_PREFETCH_INDEX = 80
    RAGGED_DOT = 90
    IS_REVERSE = 94
    NUM_CARRIES = 95
    IS_ASSOCIATIVE = 96


class ShapeField:
    """ShapeProto."""

    ELEMENT_TYPE = 2
    DIMENSIONS = 3
    TUPLE_SHAPES = 4
    LAYOUT = 5
    IS_DYNAMIC = 6


class LayoutField:
    """LayoutProto."""

    MINOR_TO_MAJOR = 1
    TILES = 6
    ELEMENT_BITS = 7
    MEMORY_SPACE = 8
    DIM_LEVEL_TYPES = 9
    INDEX_TYPE = 11
    POINTER_TYPE = 12
    DIM_UNIQUE = 13
    DIM_ORDERED = 14
    METADATA_PREFIX = 15
    TAIL_PADDING = 16
    SPLITS = 17


class LiteralField:
    """LiteralProto; :data:`LITERAL_FIELDS` gives the field of the elements."""

    SHAPE = 1
    TUPLE_LITERALS = 10


class MetadataField:
    """OpMetadata."""

    OP_TYPE = 1
    OP_NAME = 2
    SOURCE_FILE = 3
    SOURCE_LINE = 4
    PROFILE_TYPE = 5
    CODE_BYTES = 8
    WORKING_SET_BYTES = 9
    DEDUPLICATED_NAME = 12
    STACK_FRAME_ID = 15
    SCHEDULING_NAME = 16
    SOURCE_END_LINE = 17
    SOURCE_COLUMN = 18
    SOURCE_END_COLUMN = 19


class StackFramesField:
    """StackFrameIndexProto; ids count from 1."""

    FILE_NAMES = 1
    FUNCTION_NAMES = 2
    LOCATIONS = 3
    FRAMES = 4
    LOCATION_FILE = 1
    LOCATION_FUNCTION = 2
    LOCATION_LINE = 3
    LOCATION_COLUMN = 4
    LOCATION_END_LINE = 5
    LOCATION_END_COLUMN = 6
    FRAME_LOCATION = 1
    FRAME_PARENT = 2


class DotField:
    """DotDimensionNumbers."""

    LHS_CONTRACTING = 1
    RHS_CONTRACTING = 2
    LHS_BATCH = 3
    RHS_BATCH = 4


class GatherField:
    """GatherDimensionNumbers."""

    OFFSET_DIMS = 1
    COLLAPSED_SLICE_DIMS = 2
    START_INDEX_MAP = 3
    INDEX_VECTOR_DIM = 4
    OPERAND_BATCHING_DIMS = 5
    START_INDICES_BATCHING_DIMS = 6


class ScatterField:
    """ScatterDimensionNumbers."""

    UPDATE_WINDOW_DIMS = 1
    INSERTED_WINDOW_DIMS = 2
    TO_OPERAND_DIMS = 3
    INDEX_VECTOR_DIM = 4
    INPUT_BATCHING_DIMS = 5
    SCATTER_INDICES_BATCHING_DIMS = 6


class SliceField:
    """SliceDimensions, one per dimension."""

    START = 1
    LIMIT = 2
    STRIDE = 3


class PaddingField:
    """PaddingConfig and its dimensions."""

    DIMENSIONS = 1
    LOW = 1
    HIGH = 2
    INTERIOR = 3


class WindowField:
    """Window and its dimensions."""

    DIMENSIONS = 1
    SIZE = 1
    STRIDE = 2
    PADDING_LOW = 3
    PADDING_HIGH = 4
    WINDOW_DILATION = 5
    BASE_DILATION = 6
    REVERSAL = 7


class ConvolutionField:
    """ConvolutionDimensionNumbers."""

    KERNEL_INPUT_FEATURE = 3
    KERNEL_OUTPUT_FEATURE = 4
    KERNEL_SPATIAL = 6
    INPUT_BATCH = 7
    INPUT_FEATURE = 8
    OUTPUT_BATCH = 9
    OUTPUT_FEATURE = 10
    INPUT_SPATIAL = 11
    OUTPUT_SPATIAL = 12


class GroupField:
    """ReplicaGroup, SourceTarget, CollectiveDeviceListProto and IotaReplicaGroupListProto."""

    REPLICA_IDS = 1
    SOURCE = 1
    TARGET = 2
    LIST_GROUPS = 1
    LIST_IOTA = 2
    IOTA_GROUPS = 1
    IOTA_PER_GROUP = 2
    IOTA_DIMS = 3
    IOTA_PERMUTATION = 4


class MeshGroupField:
    """MeshAxesReplicaGroupListProto, MeshProto, its axes and its order, AxisRefProto, a part."""

    MESH = 1
    CHOSEN = 2
    AXES = 1
    DEVICE_IDS = 2
    ORDER = 3
    ORDER_SIZES = 1
    ORDER_MOVED = 2
    NAME = 1
    SIZE = 2
    AXIS = 1
    PART = 2
    PART_BEFORE = 1
    PART_SIZE = 2


class AliasField:
    """HloInputOutputAliasProto, HloBufferDonorProto and their entries."""

    ENTRIES = 1
    OUTPUT_INDEX = 1
    PARAMETER = 2
    PARAMETER_INDEX = 3
    KIND = 4
    MAY_ALIAS = 1
    MUST_ALIAS = 2
    DONOR_PARAMETER = 1
    DONOR_INDEX = 2


class MapField:
    """An entry of a protobuf map; FrontendAttributes holds one in field 1."""

    ENTRIES = 1
    KEY = 1
    VALUE = 2


# PrimitiveType, by HLO's spelling in lower case.
ELEMENT_TYPES: dict[str, int] = {
    "pred": 1, "s8": 2, "s16": 3, "s32": 4, "s64": 5, "u8": 6, "u16": 7, "u32": 8,
    "u64": 9, "f16": 10, "f32": 11, "f64": 12, "tuple": 13, "opaque": 14, "c64": 15,
    "bf16": 16, "token": 17, "c128": 18, "f8e5m2": 19, "f8e4m3fn": 20, "s4": 21,
    "u4": 22, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24, "f8e4m3fnuz": 25, "s2": 26,
    "u2": 27, "f8e4m3": 28, "f8e3m4": 29, "s1": 30, "u1": 31, "f4e2m1fn": 32,
    "f8e8m0fnu": 33, "f6e3m2fn": 35, "f6e2m3fn": 36,
}  # fmt: skip
ELEMENT_NAMES = {number: name for name, number in ELEMENT_TYPES.items()}

# LiteralProto's field for the elements of each type.
LITERAL_FIELDS: dict[str, int] = {
    "pred": 2, "u8": 3, "s32": 4, "s64": 5, "u32": 6, "u64": 7, "f32": 8, "f64": 9,
    "f16": 11, "c64": 12, "bf16": 13, "s8": 15, "u16": 16, "s16": 17, "c128": 18,
    "f8e5m2": 19, "f8e4m3fn": 20, "s4": 21, "u4": 22, "f8e4m3b11fnuz": 23,
    "f8e5m2fnuz": 24, "f8e4m3fnuz": 25, "s2": 26, "u2": 27, "f8e4m3": 28, "f8e3m4": 29,
    "s1": 30, "u1": 31, "f4e2m1fn": 32, "f8e8m0fnu": 33,
    "f6e3m2fn": 35, "f6e2m3fn": 36,
}  # fmt: skip
