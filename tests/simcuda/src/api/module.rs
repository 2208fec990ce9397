//! Module: modules, libraries of the newer interface, functions and global variables.

use crate::code::{self, Code, Done};
use crate::door::{In, Out, exports};
use crate::memory::Region;
use crate::module::{Module, entries as kernels, globals};
use crate::world::{self, World};
use std::collections::BTreeMap;

/// First bytes of the binary images that are known: ELF, the wrapper of a fat binary, the binary.
const BINARY: [[u8; 4]; 3] =
    [[0x7f, b'E', b'L', b'F'], [0xb1, 0x43, 0x62, 0x46], [0x50, 0xed, 0x55, 0xba]];

exports! {
    Context(_at) fn cuModuleLoad(module: Out<u64>, path: In<u8>) {
        let image = std::fs::read(path.text()?).map_err(|_| code::FILE_NOT_FOUND)?;
        load(module, &image)
    }

    Context(_at) fn cuModuleLoadData(module: Out<u64>, image: In<u8>) {
        load(module, &bytes_of(image)?)
    }

    Context(_at) fn cuModuleLoadDataEx(
        module: Out<u64>, image: In<u8>, _count: u32, _options: Out<u8>, _values: Out<u8>,
    ) {
        load(module, &bytes_of(image)?)
    }

    Context(_at) fn cuModuleLoadFatBinary(module: Out<u64>, image: In<u8>) {
        load(module, &bytes_of(image)?)
    }

    Context(_at) fn cuModuleUnload(module: u64) {
        unload(&mut world::lock(), module)
    }

    Context(_at) fn cuModuleGetFunction(function: Out<u64>, module: u64, name: In<u8>) {
        find(function, module, name)
    }

    Context(_at) fn cuModuleGetFunctionCount(count: Out<u32>, module: u64) {
        count.set(listed(&world::lock(), module)?)
    }

    Context(_at) fn cuModuleGetGlobal_v2(
        address: Out<u64>, bytes: Out<u64>, module: u64, name: In<u8>,
    ) {
        global(address, bytes, module, name)
    }

    Ready(_at) fn cuModuleGetLoadingMode(mode: Out<u32>) {
        mode.set(1)
    }

    Context(_at) fn cuLibraryLoadData(
        library: Out<u64>, image: In<u8>, _options: Out<u8>, _values: Out<u8>, _count: u32,
        _library_options: Out<u8>, _library_values: Out<u8>, _library_count: u32,
    ) {
        load(library, &bytes_of(image)?)
    }

    Context(_at) fn cuLibraryUnload(library: u64) {
        unload(&mut world::lock(), library)
    }

    Context(_at) fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: In<u8>) {
        find(kernel, library, name)
    }

    Context(_at) fn cuLibraryGetKernelCount(count: Out<u32>, library: u64) {
        count.set(listed(&world::lock(), library)?)
    }

    Context(_at) fn cuLibraryGetModule(module: Out<u64>, library: u64) {
        known(&world::lock(), library)?;
        module.set(library)
    }

    Context(_at) fn cuLibraryGetGlobal(
        address: Out<u64>, bytes: Out<u64>, library: u64, name: In<u8>,
    ) {
        global(address, bytes, library, name)
    }

    Context(_at) fn cuKernelGetFunction(function: Out<u64>, kernel: u64) {
        if !world::lock().modules.functions.contains_key(&kernel) {
            return Err(code::INVALID_HANDLE);
        }
        function.set(kernel)
    }

    Context(_at) fn cuFuncGetModule(module: Out<u64>, function: u64) {
        let world = world::lock();
        let function = world.modules.functions.get(&function).ok_or(code::INVALID_HANDLE)?;
        module.set(function.module)
    }
}

/// The image's bytes, as far as they are looked at: the whole of PTX, the start of a binary.
fn bytes_of(image: In<u8>) -> Result<Vec<u8>, Code> {
    let first: Vec<u8> = image.list(1)?;
    if first[0] == 0x7f || first[0] == 0xb1 || first[0] == 0x50 {
        return image.list(4);
    }
    Ok(image.text()?.into_bytes())
}

fn load(module: Out<u64>, image: &[u8]) -> Done {
    module.check()?;
    let binary = BINARY.iter().any(|magic| image.starts_with(magic));
    let text = String::from_utf8_lossy(image);
    if !binary && !text.contains(".version") {
        return Err(code::INVALID_IMAGE);
    }
    let mut world = world::lock();
    let here = world.here()?;
    let kernels = (!binary).then(|| kernels(&text));
    let mut places = BTreeMap::new();
    for (name, bytes) in if binary { Vec::new() } else { globals(&text) } {
        let number = world.memory.number();
        let (device, context) = (here.device, here.context);
        // Of the module, so no allocation of the program's: they cost no capacity.
        let region = Region {
            bytes: bytes.max(1),
            charged: 0,
            device,
            context,
            pool: 0,
            managed: false,
            number,
            graph: 0,
            doomed: true,
        };
        places.insert(name, (world.memory.place(region)?, bytes));
    }
    let handle = world.handle();
    let made =
        Module { context: here.context, kernels, functions: BTreeMap::new(), globals: places };
    world.modules.modules.insert(handle, made);
    module.set(handle)
}

fn unload(world: &mut World, module: u64) -> Done {
    let gone = world.modules.unload(module)?;
    for (address, _) in gone.globals.values() {
        world.free(*address);
    }
    Ok(())
}

fn find(function: Out<u64>, module: u64, name: In<u8>) -> Done {
    function.check()?;
    let (name, mut world) = (name.text()?, world::lock());
    let (strangers, handle) = (world.config.strangers, world.handle());
    function.set(world.modules.function(module, &name, strangers, handle)?)
}

fn known(world: &World, module: u64) -> Result<&Module, Code> {
    world.modules.modules.get(&module).ok_or(code::INVALID_HANDLE)
}

fn listed(world: &World, module: u64) -> Result<u32, Code> {
    Ok(known(world, module)?.kernels.as_ref().map_or(0, Vec::len) as u32)
}

fn global(address: Out<u64>, bytes: Out<u64>, module: u64, name: In<u8>) -> Done {
    let (name, world) = (name.text()?, world::lock());
    let (place, size) = *known(&world, module)?.globals.get(&name).ok_or(code::NOT_FOUND)?;
    address.set_if_wanted(place);
    bytes.set_if_wanted(size);
    Ok(())
}
