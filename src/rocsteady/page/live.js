// The live page renews itself: the same page, asked for again every two seconds.
(() => {
  const renew = async () => {
    const open = [...document.querySelectorAll("details")].map((each) => each.open);
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        document.getElementById("report").replaceWith(fresh.getElementById("report"));
        document.title = fresh.title;
        document.querySelectorAll("details").forEach((each, index) => { each.open = open[index] || false; });
      }
    } catch { /* the server has ended: the last page stays */ }
    setTimeout(renew, 2000);
  };
  setTimeout(renew, 2000);
})();
