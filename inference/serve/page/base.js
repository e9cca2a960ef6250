// What all parts of the page use: elements, the line of its state, requests, the token.

export const $ = (id) => document.getElementById(id);
export const state = {
  id: null, listed: 0, token: localStorage.getItem("turngraph-token"), running: null, login: null,
};

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Draws a list anew. The focus stays on the same button, or at its place, or goes to another element.
export function redraw(list, items, otherwise) {
  const held = document.activeElement;
  const place = [...list.querySelectorAll("button")].indexOf(held);
  list.replaceChildren(...items);
  if (place < 0) return;
  const buttons = [...list.querySelectorAll("button")];
  const same = held.dataset.key && buttons.find((one) => one.dataset.key === held.dataset.key);
  (same || buttons[Math.min(place, buttons.length - 1)] || otherwise).focus();
}

export function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

export async function call(method, path, { json, body, signal } = {}) {
  const headers = {}, { token } = state;
  if (/^[!-~]+$/.test(token ?? "")) headers.Authorization = `Bearer ${token}`; // others no header can hold
  if (json !== undefined) headers["Content-Type"] = "application/json";
  const reply = await fetch(path, {
    method, headers, signal, body: json === undefined ? body : JSON.stringify(json),
  });
  if (reply.status === 401) {
    if (token === state.token) await logIn();
    return call(method, path, { json, body, signal });
  }
  if (token) localStorage.setItem("turngraph-token", token); // it is one
  if (!reply.ok) {
    const said = await reply.json().catch(() => null);
    throw new Error(said?.error?.message ?? `the server answered ${reply.status}`);
  }
  return reply;
}

export const get = async (path) => (await call("GET", path)).json();

// Asks for a token, once for all that wait for one.
function logIn() {
  localStorage.removeItem("turngraph-token");
  state.login ??= new Promise((resolve) => {
    $("login").showModal();
    $("refused").textContent = state.token ? "This token is not known here." : "";
    $("token").select();
    $("login").addEventListener("close", () => {
      state.token = $("token").value.trim();
      state.login = null;
      resolve();
    }, { once: true });
  });
  return state.login;
}

export function attempt(action) {
  return async (...given) => {
    try {
      await action(...given);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message, true);
    }
  };
}
