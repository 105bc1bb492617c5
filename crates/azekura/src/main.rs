//! temporary
mod node;
mod size {
    #[derive(Clone, Copy, Debug)]
    pub struct Size(pub u64);
    impl Size {
        pub fn bytes(self) -> u64 {
            self.0
        }
    }
    impl std::str::FromStr for Size {
        type Err = std::num::ParseIntError;
        fn from_str(s: &str) -> Result<Self, Self::Err> {
            let g = s.trim_end_matches("GiB");
            if g != s {
                return Ok(Size(g.parse::<u64>()? << 30));
            }
            let m = s.trim_end_matches("MiB");
            if m != s {
                return Ok(Size(m.parse::<u64>()? << 20));
            }
            Ok(Size(s.parse()?))
        }
    }
}
use clap::Parser;
#[derive(Parser)]
enum Cli {
    Node(node::NodeArgs),
    Create { config: String, name: String, size: size::Size, copies: u32 },
}
fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match Cli::parse() {
        Cli::Node(args) => node::run(args),
        Cli::Create { config, name, size, copies } => tokio::runtime::Runtime::new()?.block_on(async move {
            use azekura_meta::{cluster::*, *};
            let client = MetaClient::connect(vec![config]).await?;
            let _ = client
                .create_class(&ClassSpec { name: "default".into(), copies, ..ClassSpec::new("default", copies) })
                .await;
            client
                .create_groups("default", 48, |model, class, n| {
                    let devs: Vec<_> = model.devices.keys().copied().collect();
                    Ok((0..n)
                        .map(|i| {
                            let m: Vec<_> = (0..class.copies)
                                .map(|c| {
                                    devs[((i + c * (1 + (i / devs.len() as u32) % (devs.len() as u32 - 1))) as usize)
                                        % devs.len()]
                                })
                                .collect();
                            NewGroup { primary: m[0], members: m }
                        })
                        .collect())
                })
                .await?;
            client.create_volume(&VolumeSpec { name, size_bytes: size.bytes(), class: "default".into() }).await?;
            Ok(())
        }),
    }
}
