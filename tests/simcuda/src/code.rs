//! Codes: the driver's answers, with their names and sentences.
//!
//! Asked by every file here. Never knows who answers.

/// One answer that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

/// What every entry point comes to.
pub type Done = Result<(), Code>;

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(
            // Injected faults answer some that nothing here does.
            #[allow(dead_code)]
            pub const $name: Code = Code($number);
        )*

        /// Number, name and sentence, the texts ended by a zero for C.
        pub const TABLE: &[(i32, &str, &str)] = &[
            (0, "CUDA_SUCCESS\0", "no error\0"),
            $(($number, concat!("CUDA_ERROR_", stringify!($name), "\0"), concat!($text, "\0")),)*
        ];
    };
}

codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    STUB_LIBRARY = 34, "a stub library was loaded instead of a driver";
    DEVICE_UNAVAILABLE = 46, "device busy or unavailable";
    NO_DEVICE = 100, "no device";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    MAP_FAILED = 205, "mapping failed";
    UNMAP_FAILED = 206, "unmapping failed";
    ALREADY_MAPPED = 208, "already mapped";
    NO_BINARY_FOR_GPU = 209, "no kernel image for the device";
    NOT_MAPPED = 211, "not mapped";
    ECC_UNCORRECTABLE = 214, "uncorrectable ECC error";
    UNSUPPORTED_LIMIT = 215, "limit is not supported";
    PEER_ACCESS_UNSUPPORTED = 217, "peer access is not supported";
    INVALID_PTX = 218, "PTX could not be compiled";
    FILE_NOT_FOUND = 301, "file not found";
    OPERATING_SYSTEM = 304, "a call of the operating system failed";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "the resource is not in a state for this";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, "the launch timed out";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "the primary context is active";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    ASSERT = 710, "device-side assert triggered";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "host memory is registered already";
    HOST_MEMORY_NOT_REGISTERED = 713, "host memory is not registered";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "operation would merge two captures";
    STREAM_CAPTURE_UNMATCHED = 903, "capture was not begun in this stream";
    STREAM_CAPTURE_UNJOINED = 904, "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "dependency would cross the capture's border";
    STREAM_CAPTURE_IMPLICIT = 906, "operation would depend on a capturing stream";
    CAPTURED_EVENT = 907, "event was last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "capture was begun by another thread";
    UNKNOWN = 999, "unknown error";
}

/// Errors after which a context is of no use any more.
pub fn is_sticky(code: i32) -> bool {
    matches!(code, 214 | 700 | 702 | 710 | 719)
}

/// Name and sentence of `code`.
pub fn text(code: i32) -> Option<(&'static str, &'static str)> {
    TABLE.iter().find(|row| row.0 == code).map(|row| (row.1, row.2))
}
