use super::*;

/// A grammar with an option of each kind.
fn grammar() -> Command {
    let node = Command::new(NODE)
        .arg(Arg::new("data").long("data").value_name("DIR").required(true).help("The folder"))
        .arg(Arg::new("port").long("port").value_name("N").default_value("7").value_parser(clap::value_parser!(u16)))
        .arg(Arg::new("config").long("config").value_name("URL,URL").value_delimiter(',').env("AZEKURA_TEST_CONFIG"))
        .arg(Arg::new("safe").long("safe").action(ArgAction::SetTrue).help("Be safe"))
        .arg(Arg::new("replace-key").long("replace-key").action(ArgAction::SetTrue))
        .arg(option())
        .subcommand(Command::new("list"))
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .arg_required_else_help(true);
    Command::new("azekura").subcommand(node).subcommand(Command::new("status"))
}

/// A file in a folder of its own.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let folder = std::env::temp_dir().join(format!("azekura-config-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), text).unwrap();
        File(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("config.toml")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn expanded(words: &[&str]) -> Result<Vec<String>, String> {
    let words = words.iter().map(OsString::from).collect();
    let (words, _) = with_file(&grammar(), words).map_err(|error| error.to_string())?;
    Ok(words.into_iter().map(|word| word.into_string().unwrap()).collect())
}

#[test]
fn options_come_from_the_file_unless_they_are_given() {
    let file =
        File::new("given", "[node]\ndata = '/d'\nport = 8\nconfig = ['http://a', \"http://b\"] # two\nsafe = true\n");
    let path = file.path();
    let path = path.to_str().unwrap();
    assert_eq!(
        expanded(&["azekura", "node", "--config-file", path]).unwrap()[2..],
        ["--config=http://a", "--config=http://b", "--data=/d", "--port=8", "--safe", "--config-file", path]
    );
    let words = expanded(&["azekura", "node", "--port", "9", "--config=x", "--config-file", path]).unwrap();
    assert_eq!(words[2..5], ["--data=/d", "--safe", "--port"]);
    let read = grammar().try_get_matches_from(words).unwrap();
    let (_, read) = read.subcommand().unwrap();
    assert_eq!((read.get_one::<u16>("port"), read.get_flag("safe")), (Some(&9), true));
    // Nothing is read for other commands, or where no file is named.
    for words in
        [&["azekura", "status"][..], &["azekura", "node", "list"], &["azekura", "node", "--data", "x"], &["azekura"]]
    {
        assert_eq!(expanded(words).unwrap(), words);
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let file = File::new("wrong", "");
    for (text, told) in [
        ("[node]\ndata = '/d'\nlisten = 'x'\n", "line 3: listen: there is no such option"),
        ("[node]\nport = true\n", "line 2: port: this takes a value, and neither"),
        ("[node]\nport = [1, 2]\n", "line 2: port: this takes one value"),
        ("[node]\nsafe = 'yes'\n", "line 2: safe: this takes true or false"),
        ("[node]\nport = 1.5\n", "line 2: port is neither"),
        ("[node]\nport = 0x10\n", "line 2: port is neither"),
        ("[node]\nconfig = [true]\n", "line 2: config is a list of something else"),
        ("[node]\nreplace-key = true\n", "line 2: replace-key: this is for the command line alone"),
        ("[node]\nconfig-file = 'x'\n", "line 2: config-file: this is for the command line alone"),
        ("\n[nodes]\ndata = '/d'\n", "line 2: there is no table nodes"),
        ("data = '/d'\n", "line 1: there is no table data"),
        ("[node]\ndata = '/d'\ndata = '/e'\n", "line 3"),
        ("[node]\ndata = '/d\n", "line 2"),
        ("[node]\ndata = '/d'\nport = 70000\n", "line 3: port: invalid value '70000'"),
        ("[node]\nport = 1\n", "--data <DIR>"),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let error = check(&grammar(), &file.path(), fine).unwrap_err().to_string();
        assert!(error.contains(told) && error.contains("config.toml"), "{text}: {error}");
    }
    std::fs::write(file.path(), "[node]\ndata = '/d'\nport = 80\n").unwrap();
    assert_eq!(check(&grammar(), &file.path(), fine).unwrap().0.len(), 2);
    let error = check(&grammar(), Path::new("/none/at/all"), fine).unwrap_err().to_string();
    assert!(error.contains("can't read /none/at/all"), "{error}");
}

#[test]
fn the_example_has_every_option_and_can_be_used() {
    let text = example(&grammar());
    for line in [
        "\ndata = \"/var/lib/azekura\"\n",
        "\n# port = 7\n",
        "\n# config = [\"URL\"]\n",
        "\n# Be safe\n# safe = false\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains("replace-key") && !text.contains("\n# config-file ="));
    let file = File::new("example", &text);
    assert_eq!(check(&grammar(), &file.path(), fine).unwrap().0.len(), 1);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH + 2));
}

#[test]
fn no_text_makes_the_reader_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let pieces =
        ["[node]", "\n", "data", "=", "'x'", "\"", "[", "]", "1", "true", "\u{e9}", "#", "port", ".", "{", "}", "-"];
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        if let Ok(file) = ConfigFile::parse(Path::new("f"), &text) {
            let _ = file.words(grammar().find_subcommand(NODE).unwrap(), |_| false);
        }
    }
}

#[test]
fn what_is_dangerous_is_noted() {
    let notes = |text: &str| ConfigFile::parse(Path::new("f"), &format!("[node]\n{text}")).unwrap().notes();
    let plain = "serve-config-transport = \"plain\"\n";
    let served = notes(&format!("{plain}serve-config = \"10.0.0.1:7179\""));
    assert!(served.len() == 1 && served[0].contains("10.0.0.1:7179"), "{served:?}");
    assert!(notes(&format!("{plain}serve-config = \"[::1]:7179\"")).is_empty());
    assert!(notes("serve-config = \"10.0.0.1:7179\"").is_empty(), "it has TLS");
    let asked = notes("config = [\"https://a:1\", \"http://b:1\", \"c:1\", \"http://localhost:1\", \"127.0.0.1:1\"]");
    assert!(asked.len() == 2 && asked[0].contains("http://b:1") && asked[1].contains("c:1"), "{asked:?}");
}

/// A node that has nothing to say.
fn fine(_: &ArgMatches) -> Result<Vec<String>, String> {
    Ok(Vec::new())
}

#[test]
fn what_the_node_says_is_told_by_the_files_line() {
    let file = File::new("judged", "[node]\ndata = '/d'\n\nport = 8\n");
    let judged = |said: Result<Vec<String>, String>| {
        let judge = |found: &ArgMatches| {
            assert_eq!(found.get_one::<u16>("port"), Some(&8));
            said
        };
        check(&grammar(), &file.path(), judge).map(|(_, notes)| notes).map_err(|error| error.to_string())
    };
    assert_eq!(judged(Ok(vec!["a word".into()])).unwrap(), ["a word"]);
    let error = judged(Err("--port 8: ask for another".into())).unwrap_err();
    assert!(error.contains("config.toml, line 4: port: --port 8: ask for another"), "{error}");
    let error = judged(Err("--ports are few".into())).unwrap_err();
    assert!(error.contains("config.toml: --ports are few"), "{error}");
}
