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
  const response = await fetch(location.href, {headers: {"X-HorovodJob-Page": secret}});
  const text = await response.text();  // also that of an error
  document.open();
  document.write(text);
  document.close();
})();
