//! What `dwell serve` keeps is for its user alone, whatever the shell and other users say.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dwell::model::error::Result;

use crate::support::{eventually, failed, scratch};

/// A broker that was started by a shell which hides nothing. It is killed when dropped.
struct Open(Child);

impl Drop for Open {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `dwell serve` on a directory, in a shell that lets everybody read and write what is made.
fn serve(dir: &Path, data: &Path, redis: bool) -> Command {
    let store = if redis { "--redis redis://127.0.0.1:1" } else { "" };
    let line = format!(
        "umask 000; exec {} serve --listen unix:{} --data-dir {} {store}",
        env!("CARGO_BIN_EXE_dwell"),
        dir.join("dwell.sock").display(),
        data.display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env_clear().env("HOME", dir).stdin(Stdio::null());
    shell
}

fn refused(dir: &Path, data: &Path) -> Result<String> {
    let Output { status, stderr, .. } = serve(dir, data, true).output().map_err(failed("dwell serve"))?;
    assert!(!status.success());
    Ok(String::from_utf8_lossy(&stderr).into_owned())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed("a mode"))
}

/// Everything below a directory.
fn below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed("a directory"))? {
        let path = entry.map_err(failed("an entry"))?.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(below(&path)?);
        }
        found.push(path);
    }
    Ok(found)
}

#[tokio::test]
async fn stored_files_are_private() -> Result<()> {
    for redis in [false, true] {
        let dir = scratch()?;
        let data = dir.path().join("data");
        let child = serve(dir.path(), &data, redis).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let _open = Open(child.map_err(failed("dwell serve"))?);
        let socket = dir.path().join("dwell.sock");
        let answers = async || Ok(tokio::net::UnixStream::connect(&socket).await.ok());
        eventually("dwell serve listens", answers).await?;
        let kept = || Ok(Some(below(&data)?).filter(|kept| kept.iter().filter(|path| path.is_file()).count() >= 2));
        let kept = eventually("something is kept", async || if data.is_dir() { kept() } else { Ok(None) }).await?;
        for path in kept.iter().chain([&data]) {
            // sled replaces files of its own meanwhile.
            if let Ok(found) = std::fs::symlink_metadata(path) {
                assert_eq!(found.mode() & 0o077, 0, "{} is {:o}", path.display(), found.mode());
            }
        }
    }
    Ok(())
}

#[test]
fn world_writable_directory_is_refused_and_unchanged() -> Result<()> {
    let dir = scratch()?;
    let (data, victim) = (dir.path().join("data"), dir.path().join("victim"));
    std::fs::write(&victim, "untouched").and_then(|()| std::fs::create_dir(&data)).map_err(failed("a directory"))?;
    set_mode(&data, 0o777)?;
    symlink(&victim, data.join("topics.new")).map_err(failed("a link"))?;
    let said = refused(dir.path(), &data)?;
    assert!(said.contains("lets other users write (mode 0777)"), "{said}");
    set_mode(&data, 0o700)?;
    let link = dir.path().join("link");
    symlink(&data, &link).map_err(failed("a link"))?;
    let said = refused(dir.path(), &link)?;
    assert!(said.contains("is a symbolic link"), "{said}");
    symlink(&data, data.join("wal")).map_err(failed("a link"))?;
    let said = refused(dir.path(), &data)?;
    assert!(said.contains("/wal: is a symbolic link"), "{said}");
    assert_eq!(below(&data)?.len(), 2, "nothing was made");
    assert_eq!(std::fs::read_to_string(&victim).map_err(failed("a file"))?, "untouched");
    Ok(())
}
