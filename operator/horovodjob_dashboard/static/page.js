// Gets the page of this address with the secret of the session, which the storage of this scheme, host and port has.
"use strict";

(async () => {
  const given = (name) => document.querySelector(`meta[name=page-${name}]`).content;
  if (given("secret")) {
    localStorage.setItem("horovodjob-page", given("secret"));
    location.replace(given("target"));
    return;
  }
  const secret = localStorage.getItem("horovodjob-page") ?? "";
  let text = "";  // also that of an error
  for (let pauseMs = 1000; !text; pauseMs = Math.min(2 * pauseMs, 30_000)) {
    const response = await fetch(location.href, {headers: {"X-HorovodJob-Page": secret}}).catch(() => null);
    text = await response?.text().catch(() => "") ?? "";
    if (text) break;
    document.body.textContent = "The connection is lost; trying again.";
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  document.open();
  document.write(text);
  document.close();
})();
