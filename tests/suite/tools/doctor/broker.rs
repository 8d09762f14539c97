//! The broker that the configuration names.

use dwell::model::error::Result;

use super::{Doctor, read};
use crate::support::{Process, failed};

#[tokio::test]
async fn doctor_asks_the_broker_of_the_configuration_with_its_token() -> Result<()> {
    let doctor = Doctor::new()?;
    let (token, file) = (doctor.dir().join("token"), doctor.dir().join("dwell.toml"));
    let socket = doctor.dir().join("dwell.sock");
    let config = format!(
        "listen = 'unix:{}'\n[[auth.token]]\nname = 'watcher'\nfile = '{}'\nscopes = ['view']\n",
        socket.display(),
        token.display()
    );
    std::fs::write(&token, "a-token-of-at-least-thirty-two-characters").map_err(failed("a token"))?;
    std::fs::write(&file, config).map_err(failed("a configuration"))?;
    let mut command = doctor.command(&["--config", &file.display().to_string()]);
    command.env_remove("DWELL_SERVER").arg("--json");
    let broker = Process::serve(doctor.dir(), &[("CONFIG", &file.display().to_string())]).await?;
    let said = read(&mut command)?;
    // The version is in its metrics, which it shows to who has a token.
    let ready = format!("unix:{} is ready, dwell {}", socket.display(), env!("CARGO_PKG_VERSION"));
    assert!(said.says("broker", "ok", &ready), "{said:#?}");
    drop(broker);
    let absent = format!("none answers at unix:{}", socket.display());
    let mut command = doctor.command(&["--config", &file.display().to_string(), "--json"]);
    let said = read(command.env_remove("DWELL_SERVER"))?;
    assert!(said.says("broker", "skip", &absent), "{said:#?}");
    std::fs::write(&file, "listen = 'nowhere'").map_err(failed("a configuration"))?;
    let wrong = doctor.asked(&["--config", &file.display().to_string()])?;
    assert!(wrong.code == Some(64) && wrong.says("broker", "skip", "configuration is wrong"), "{wrong:#?}");
    Ok(())
}
