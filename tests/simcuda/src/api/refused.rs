//! Refused: entry points that programs look up, or could come to call, and that do nothing here.
//!
//! Whatever their arguments, they answer that the call is not supported.

use crate::code;
use crate::door::{Out, exports};

exports! {
    Free(_at) fn cuLinkAddData_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuLinkAddFile_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuLinkComplete() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuLinkCreate_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuLinkDestroy() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuTensorMapEncodeTiled() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuTensorMapEncodeIm2col() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuTensorMapReplaceAddress() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMulticastCreate() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMulticastAddDevice() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMulticastBindMem() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMulticastBindAddr() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMulticastUnbind() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMulticastGetGranularity() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGreenCtxCreate() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGreenCtxDestroy() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGreenCtxStreamCreate() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuCtxFromGreenCtx() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuDeviceGetDevResource() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuDevResourceGenerateDesc() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuDevSmResourceSplitByCount() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuImportExternalMemory() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuExternalMemoryGetMappedBuffer() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuDestroyExternalMemory() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuIpcGetMemHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuIpcOpenMemHandle_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuIpcCloseMemHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuIpcGetEventHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuIpcOpenEventHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMemExportToShareableHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMemImportFromShareableHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMemGetHandleForAddressRange() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMemPoolExportToShareableHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMemPoolImportFromShareableHandle() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuMemRangeGetAttribute() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuStreamWaitValue32_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuStreamWaitValue64_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuStreamBatchMemOp_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuStreamUpdateCaptureDependencies_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuUserObjectCreate() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuUserObjectRelease() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGraphRetainUserObject() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGraphAddNode_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGraphAddKernelNode_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGraphDebugDotPrint() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGraphExecUpdate_v2() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuGetExportTable() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuFlushGPUDirectRDMAWrites() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuCoredumpGetAttributeGlobal() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuOccupancyMaxActiveClusters() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuOccupancyMaxPotentialClusterSize() { Err(code::NOT_SUPPORTED) }
    Free(_at) fn cuDeviceGetLuid() { Err(code::NOT_SUPPORTED) }

    /// Nothing is ever logged.
    Free(_at) fn cuLogsRegisterCallback(_run: u64, _data: u64, handle: Out<u64>) {
        handle.set_if_wanted(1);
        Ok(())
    }

    Free(_at) fn cuLogsUnregisterCallback(_handle: u64) {
        Ok(())
    }
}
