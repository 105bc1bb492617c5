//! Makes `crates/csi/proto/csi.v1.generated` from `csi.proto` beside it, which is the file of the CSI specification:
//! `cargo run --manifest-path tools/csi-proto/Cargo.toml`. It is run by hand when that file is replaced
//! (docs/decisions/0047-csi.md); a test of `crates/csi` notices when it was forgotten.

use std::path::Path;
use std::{env, fs};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/csi/proto");
    let mut files = protox::compile(["csi.proto"], [&folder]).expect("csi.proto can be read");
    for file in &mut files.file {
        // Comments are in csi.proto, and would be half of the code.
        file.source_code_info = None;
    }
    let made = env::temp_dir().join(format!("csi-proto-{}", std::process::id()));
    fs::create_dir(&made).expect("a folder for temporary files");
    let builder = tonic_prost_build::configure().build_client(false).build_transport(false).out_dir(&made);
    builder.compile_fds(files).expect("code can be made");
    let code = fs::read_to_string(made.join("csi.v1.rs")).expect("code was made");
    fs::remove_dir_all(&made).expect("the folder can be removed");
    let hash = blake3::hash(&fs::read(folder.join("csi.proto")).expect("csi.proto can be read")).to_hex();
    let head = "// Made by tools/csi-proto. BLAKE3 of csi.proto:";
    fs::write(folder.join("csi.v1.generated"), format!("{head} {hash}\n{code}")).expect("the code can be kept");
}
