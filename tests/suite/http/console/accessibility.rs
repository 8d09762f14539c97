//! For everybody: contrast in both schemes, a narrow window, and names for all that can be used.

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::Console;

/// What is looked at, and what can be read there once it is whole.
const PLACES: [(&str, &str); 12] = [
    ("#/", "Delivered"),
    ("#/brokers", "this page talks to it"),
    ("#/find?q=b", "looked up"),
    ("#/topics/orders", "become due in this time"),
    ("#/topics/orders/messages", "scheduled"),
    ("#/topics/orders/messages/b", "due at"),
    ("#/topics/orders/messages/a?key=customer-7", "Last error"),
    ("#/topics/orders/push", "Content type"),
    ("#/topics/orders/dead", "buried"),
    ("#/topics/orders/cron", "nightly"),
    ("#/nowhere", "There is no such page."),
    ("#/topics/nowhere", "There is no topic nowhere."),
];

const DEAD: (&str, &str) = ("#/topics/orders/dead", "buried");

async fn loaded() -> Result<Console> {
    let console = Console::start().await?;
    let history = json!({"payload": "x", "id": "a", "key": "customer-7", "meta": {"trace": "1"}});
    console.bury("orders", vec![history], "smtp: 451").await?;
    console.push("orders", vec![json!({"payload": "x", "id": "b", "delay": "1h"})]).await?;
    console.tell("PUT /v1/topics/orders/groups/audit", json!({"rate": 5})).await?;
    console.tell("POST /v1/topics/orders/groups/audit/pause", json!({"for": "1h"})).await?;
    console.tell("PUT /v1/topics/orders/cron/nightly", json!({"cron": "0 3 * * *", "payload": "x"})).await?;
    Ok(console)
}

/// Shows a place with everything unfolded, once it is whole.
async fn shown(console: &Console, (place, there): (&str, &str)) -> Result<()> {
    console.open(place).await?;
    let unfold = "for (const e of document.querySelectorAll('details')) e.open = true";
    console.browser.run(unfold, json!([])).await?;
    console.browser.reads(there).await
}

/// Text that is not seen well on what is behind it, as WCAG computes it: 4.5 to 1, or 3 to 1 for large text.
const PALE: &str = "
    const channels = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const colour = channels(getComputedStyle(e).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) return colour;
            if (colour[3] !== 0) return null;
        }
        return [255, 255, 255];
    };
    const pale = [];
    let seen = 0;
    for (const e of document.querySelectorAll('body *')) {
        const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.matches('input, select, textarea');
        if (!own || !e.checkVisibility() || e.matches(':disabled, title') || e.closest('.unseen')) continue;
        const style = getComputedStyle(e);
        const ground = behind(e);
        const text = channels(e.namespaceURI.endsWith('svg') ? style.fill : style.color);
        const [a, b] = ground && (text.length < 4 || text[3] === 1) ? [light(text), light(ground)] : [0, 0];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        seen += 1;
        if (ratio < (large ? 3 : 4.5)) pale.push(`${e.tagName}.${e.getAttribute('class')} ${e.textContent.slice(0, 30)}: ${ratio}`);
    }
    return {pale, seen};";

#[tokio::test]
async fn text_contrast_is_sufficient_in_both_themes() -> Result<()> {
    let console = loaded().await?;
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]});
        console.browser.devtools("Emulation.setEmulatedMedia", media).await?;
        for place in PLACES {
            shown(&console, place).await?;
            let found = console.browser.run(PALE, json!([])).await?;
            assert_eq!(found["pale"], json!([]), "{scheme} {place:?}");
            assert!(found["seen"].as_u64() > Some(10), "{place:?}: {found}");
        }
        shown(&console, DEAD).await?;
        console.browser.click("Purge…").await?;
        assert_eq!(console.browser.run(PALE, json!([])).await?["pale"], json!([]), "{scheme} dialog");
        console.browser.click("Cancel").await?;
        // What measures would find it.
        console
            .browser
            .run(
                "document.querySelector('h1').style.color = getComputedStyle(document.body).backgroundColor",
                json!([]),
            )
            .await?;
        let found = console.browser.run(PALE, json!([])).await?;
        assert_eq!(found["pale"].as_array().map(Vec::len), Some(1), "{found}");
        let ground = "return getComputedStyle(document.body).backgroundColor";
        grounds.push(console.browser.run(ground, json!([])).await?);
    }
    assert_ne!(grounds[0], grounds[1]);
    // The switch wins over what the system says, and is remembered.
    console.browser.choose("Theme", "Theme: light").await?;
    console.browser.run("location.reload()", json!([])).await?;
    console.browser.reads("Dead letters").await?;
    let ground = "return getComputedStyle(document.body).backgroundColor";
    assert_eq!(console.browser.run(ground, json!([])).await?, grounds[0]);
    console.end().await
}

/// axe-core, as its makers publish it.
const AXE: &str = include_str!("../../../vendor/axe-core-4.14.1/axe.min.js");

/// The violations that axe-core finds: what is wrong, and where.
async fn violations(console: &Console) -> Result<Value> {
    console.browser.run(AXE, json!([])).await?;
    let found = "return axe.run().then(({violations, passes}) => [passes.length,
        violations.map(({id, nodes}) => [id, ...nodes.map(({html}) => html.slice(0, 200))])])";
    console.browser.run(found, json!([])).await
}

#[tokio::test]
async fn axe_finds_no_violation_on_any_page() -> Result<()> {
    let console = loaded().await?;
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]});
        console.browser.devtools("Emulation.setEmulatedMedia", media).await?;
        for place in PLACES {
            shown(&console, place).await?;
            let found = violations(&console).await?;
            assert_eq!(found[1], json!([]), "{scheme} {place:?}");
            assert!(found[0].as_u64() > Some(10), "{place:?}: {found}");
        }
    }
    shown(&console, DEAD).await?;
    console.browser.click("Purge…").await?;
    assert_eq!(violations(&console).await?[1], json!([]), "dialog");
    console.browser.run("document.querySelector('dialog label').remove()", json!([])).await?;
    assert_ne!(violations(&console).await?[1], json!([]), "what looks for violations finds them");
    console.end().await
}

#[tokio::test]
async fn narrow_layout_does_not_scroll_sideways_and_controls_have_names() -> Result<()> {
    let console = loaded().await?;
    // 640 is half of 1280: the same as enlarging to 200 %.
    for width in [360, 640, 1_280, 2_000] {
        let size = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        console.browser.devtools("Emulation.setDeviceMetricsOverride", size).await?;
        for place in PLACES {
            shown(&console, place).await?;
            let widths = "return [document.documentElement.scrollWidth, window.innerWidth]";
            let widths = console.browser.run(widths, json!([])).await?;
            assert!(widths[0].as_u64() <= widths[1].as_u64(), "{place:?}: {widths}");
        }
    }
    console.browser.devtools("Accessibility.enable", json!({})).await?;
    for place in PLACES {
        shown(&console, place).await?;
        accessible(&console, place.0).await?;
    }
    shown(&console, DEAD).await?;
    console.browser.click("Redrive…").await?;
    accessible(&console, "dialog").await?;
    // What looks for names would find it.
    let nameless =
        "document.querySelector('dialog label').remove(); document.querySelector('dialog h2').textContent = ''";
    console.browser.run(nameless, json!([])).await?;
    let (faults, _) = faults(&console, "dialog").await?;
    assert!(faults.iter().any(|fault| fault.contains("combobox")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.contains("dialog")), "{faults:?}");
    console.end().await
}

/// Controls, regions, tables and pictures without a name, and headings that do not follow each other; and how many were
/// looked at.
async fn faults(console: &Console, place: &str) -> Result<(Vec<String>, usize)> {
    let tree = console.browser.devtools("Accessibility.getFullAXTree", json!({})).await?;
    let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
    let named = [
        "button",
        "link",
        "textbox",
        "searchbox",
        "combobox",
        "checkbox",
        "spinbutton",
        "region",
        "table",
        "image",
        "img",
        "dialog",
        "navigation",
        "DateTime",
        "InputTime",
        "DisclosureTriangle",
        "heading",
    ];
    let (mut seen, mut level, mut faults) = (0, 0, Vec::new());
    for node in nodes.iter().filter(|node| node["ignored"] == false) {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if !named.contains(&role) {
            continue;
        }
        seen += 1;
        let name = node["name"]["value"].as_str().unwrap_or_default();
        if name.trim().is_empty() {
            faults.push(format!("a {role} has no name: {node}"));
        }
        if role == "heading" {
            let property = |wanted: &&Value| wanted["name"] == "level";
            let properties = node["properties"].as_array().cloned().unwrap_or_default();
            let now = properties.iter().find(property).and_then(|level| level["value"]["value"].as_u64()).unwrap_or(0);
            let first = level == 0 && now != 1 && place != "dialog";
            if now == 0 || now > level.max(1) + 1 || first {
                faults.push(format!("{name} has the level {now} behind {level}"));
            }
            level = now;
        }
    }
    Ok((faults, seen))
}

/// Everything has a name, and the page is built as it should be.
async fn accessible(console: &Console, place: &str) -> Result<()> {
    let (faults, seen) = faults(console, place).await?;
    assert!(faults.is_empty() && seen > 4, "{place}, {seen} looked at: {faults:#?}");
    let structure = "return [document.querySelectorAll('main, dialog[open]').length, document.querySelectorAll('h1').length,
        [...document.querySelectorAll('th')].every((e) => e.scope), [...document.querySelectorAll('table')].every((e) => e.caption),
        document.documentElement.lang, document.title.length > 5]";
    let structure = console.browser.run(structure, json!([])).await?;
    let regions = if place == "dialog" { 2 } else { 1 };
    assert_eq!(structure, json!([regions, 1, true, true, "en", true]), "{place}");
    Ok(())
}

/// The reason of a failure, a long word in it: as long as the broker keeps one.
fn long_reason() -> String {
    let word = "https://support.example.net/".to_owned() + &"greylisting".repeat(20);
    format!("smtp: 451 {word} {}the very end", "please come back later ".repeat(32))
}

#[tokio::test]
async fn errors_are_read_whole_at_390_pixels() -> Result<()> {
    let console = Console::start().await?;
    let reason = long_reason();
    console.bury("orders", vec![json!({"payload": "x", "id": "a", "key": "customer-7"})], &reason).await?;
    let size = json!({"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": false});
    console.browser.devtools("Emulation.setDeviceMetricsOverride", size).await?;
    let places = ["#/topics/orders/dead", "#/topics/orders/messages/a?key=customer-7", "#/find?q=greylisting"];
    for place in places {
        console.open(place).await?;
        console.browser.reads(&reason).await?;
        // All of it is within the window, and nothing around it is cut or has to be scrolled sideways.
        let whole = "const [reason] = arguments, walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
            const cut = [];
            let seen = 0;
            while (walk.nextNode()) {
                if (!walk.currentNode.data.includes(reason) || walk.currentNode.parentElement.closest('.shell')) continue;
                seen += 1;
                const range = document.createRange();
                range.selectNodeContents(walk.currentNode);
                const {left, right, height} = range.getBoundingClientRect();
                if (left < 0 || right > innerWidth) cut.push([left, right]);
                for (let e = walk.currentNode.parentElement; e !== document.body; e = e.parentElement) {
                    const clips = getComputedStyle(e).overflow !== 'visible';
                    if (e.scrollWidth > e.clientWidth + 1 && clips) cut.push([e.className, e.scrollWidth, e.clientWidth]);
                    if (clips && e.clientHeight < height - 1) cut.push([e.className, e.clientHeight, height]);
                }
            }
            return {seen, cut, wide: document.documentElement.scrollWidth > innerWidth};";
        let whole = console.browser.run(whole, json!([reason])).await?;
        assert!(whole["seen"].as_u64() > Some(0), "{place}: {whole}");
        assert_eq!((&whole["cut"], &whole["wide"]), (&json!([]), &json!(false)), "{place}");
    }
    console.end().await
}

/// The answer is what the page goes by; a real loss is over before a browser has looked.
#[tokio::test]
async fn the_overview_marks_counts_while_redis_is_restored() -> Result<()> {
    let console = loaded().await?;
    console.open("#/").await?;
    console.browser.reads("Counts are of the store").await?;
    console.browser.reads_no("counts are too low").await?;
    let answer = "
        const ask = window.fetch;
        window.fetch = async (target, ...rest) => {
            const answer = await ask(target, ...rest);
            if (!String(target).includes('/v1/attention')) return answer;
            const found = await answer.json();
            found.attention.push({kind: 'restoring', cause: 'Redis lost data'});
            return new Response(JSON.stringify(found));
        };";
    console.browser.run(answer, json!([])).await?;
    console.browser.reads("restoring").await?;
    console.browser.reads("counts are too low until they have").await?;
    console.end().await
}
