// The live page renews itself: the same page, asked for again every two seconds.
(() => {
  const renew = async () => {
    const open = [...document.querySelectorAll("details")].map((each) => each.open);
    let fresh = null;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.ok) fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch { /* the server has ended */ }
    document.getElementById("not-renewed").hidden = Boolean(fresh);
    if (fresh) {
      document.getElementById("report").replaceWith(fresh.getElementById("report"));
      document.title = fresh.title;
      document.querySelectorAll("details").forEach((each, index) => { each.open = open[index] || false; });
    }
    setTimeout(renew, 2000);
  };
  setTimeout(renew, 2000);
})();
