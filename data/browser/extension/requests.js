// SPDX-License-Identifier: Apache-2.0
// Remembers the browser's own requests of pages and frames, because a download does not tell its method, its form, or always its size.
// Requests are watched only while Todoku takes over downloads. The browser waits for none of these listeners.
import { api } from './api.js';
import { formBody, isPage, numberOf, withoutFragment } from './rules.js';

const FILTER = { urls: ['http://*/*', 'https://*/*'], types: ['main_frame', 'sub_frame'] };
const MOST_REQUESTS = 50;
const MOST_AGE = 120_000; // milliseconds
const MOST_BODY = 1024 * 1024; // bytes, as in the option post-data

/** Requests with a form that are not answered yet, by their number: {requestBody, page, type, headers}. */
const open = new Map();
/**
 * Answered requests, the oldest first: {key, isForm, size, form, at}. The key is the URL that answered. Several may have one URL, as after
 * two clicks on a button.
 */
let answered = [];

/**
 * A promise of numbers that stand for URLs that have answered forms, the URL of the last answer at the end; undefined: not read yet.
 *
 * An answer that the browser shows, such as a PDF, may be saved long after the browser has ended this script. So the browser keeps the
 * numbers until it exits, or loads the extension again. It gets no URLs to keep, because a private window may have sent the form.
 */
let formAnswers;
const MOST_FORM_ANSWERS = 500;

/** Callers of `takeLate`: {key, found}, the oldest first. */
const waiting = new Set();
const MOST_WAIT = 1000; // milliseconds

/** Adds to a map, which keeps the order of insertion, and drops the oldest entries. */
function put(map, key, value) {
    map.delete(key);
    map.set(key, value);
    while (map.size > MOST_REQUESTS)
        map.delete(map.keys().next().value);
}

function dropOld() {
    answered = answered.filter(request => Date.now() - request.at <= MOST_AGE);
}

/** Whether a body is too long to be sent again. Such a body is not kept until the answer comes. */
function isTooLong({ raw, formData }) {
    const parts = (raw ?? []).map(part => part.bytes?.byteLength ?? 0);
    const values = Object.values(formData ?? {}).flat().map(value => value.length ?? value.byteLength ?? 0);
    return [...parts, ...values].reduce((sum, length) => sum + length, 0) > MOST_BODY;
}

function readFormAnswers() {
    formAnswers ??= api.storage.session.get({ formAnswers: [] }).then(stored => stored.formAnswers);
    return formAnswers;
}

async function rememberFormAnswer(key) {
    const numbers = await readFormAnswers();
    const number = numberOf(key);
    const place = numbers.indexOf(number);
    if (place >= 0)
        numbers.splice(place, 1);
    numbers.push(number);
    numbers.splice(0, numbers.length - MOST_FORM_ANSWERS);
    await api.storage.session.set({ formAnswers: numbers });
}

/**
 * Whether `url` has answered a form since the browser started. Ask this about each download for which `take` finds no form. A request that
 * `take` finds may be another one of the same URL.
 */
export async function hasAnsweredForm(url) {
    return (await readFormAnswers()).includes(numberOf(withoutFragment(url)));
}

/** Also called for each redirect. A redirect may turn a POST into a GET, which has no form. */
function onBeforeRequest(details) {
    if (details.method !== 'POST')
        open.delete(details.requestId);
    else if (details.requestBody && !isTooLong(details.requestBody))
        put(open, details.requestId, { requestBody: details.requestBody, page: details.initiator ?? details.originUrl });
}

function onSendHeaders(details) {
    const request = open.get(details.requestId);
    if (!request)
        return;
    const field = name => details.requestHeaders?.find(header => header.name.toLowerCase() === name)?.value;
    request.type = field('content-type');
    request.headers = [['Origin', field('origin')], ['Accept-Language', field('accept-language')]]
        .filter(([, value]) => value).map(([name, value]) => ({ name, value }));
}

function onHeadersReceived(details) {
    if (details.statusCode >= 300 && details.statusCode < 400)
        return;
    const request = open.get(details.requestId);
    open.delete(details.requestId);
    dropOld();
    const key = withoutFragment(details.url);
    if (details.method !== 'GET')
        rememberFormAnswer(key).catch(() => {}); // `answered` still has the request for a while
    const field = name => details.responseHeaders?.find(header => header.name.toLowerCase() === name)?.value ?? '';
    // The browser shows a page and does not download it. So a form that leads to a page, such as one with a password, is forgotten at once.
    if (isPage(field('content-type'), field('content-disposition')))
        return;
    const form = details.method === 'POST' && request && formBody(request.requestBody, request.type, MOST_BODY);
    answered.push({
        key,
        isForm: details.method !== 'GET',
        size: /^\d{1,15}$/.test(field('content-length')) ? Number(field('content-length')) : 0,
        form: form ? { ...form, headers: request.headers ?? [], page: request.page ?? '' } : undefined,
        at: Date.now(),
    });
    answered = answered.slice(-MOST_REQUESTS);
    [...waiting].find(caller => caller.key === key)?.found();
}

const onErrorOccurred = details => open.delete(details.requestId);

/** Adds a listener once. Chromium would call a listener of requests twice that was added twice. */
function listen(event, listener, ...options) {
    if (!event.hasListener(listener))
        event.addListener(listener, ...options);
}

/** Starts to watch requests. Call this when the background script starts, so that the browser starts the script for later requests. */
export function watch() {
    listen(api.webRequest.onHeadersReceived, onHeadersReceived, FILTER, ['responseHeaders']);
}

export function watchForms() {
    listen(api.webRequest.onBeforeRequest, onBeforeRequest, FILTER, ['requestBody']);
    // Chromium gives the field Origin only with the word extraHeaders, which Firefox refuses.
    const extra = Object.values(api.webRequest.OnSendHeadersOptions ?? {}).includes('extraHeaders') ? ['extraHeaders'] : [];
    listen(api.webRequest.onSendHeaders, onSendHeaders, FILTER, ['requestHeaders', ...extra]);
    listen(api.webRequest.onErrorOccurred, onErrorOccurred, FILTER);
}

export function unwatch() {
    api.webRequest.onHeadersReceived.removeListener(onHeadersReceived);
    answered = [];
}

export function unwatchForms() {
    api.webRequest.onBeforeRequest.removeListener(onBeforeRequest);
    api.webRequest.onSendHeaders.removeListener(onSendHeaders);
    api.webRequest.onErrorOccurred.removeListener(onErrorOccurred);
    open.clear();
}

/** Removes and returns the last request that `url` answered; undefined: none is known. */
export function take(url) {
    dropOld();
    const place = answered.map(request => request.key).lastIndexOf(withoutFragment(url));
    return place < 0 ? undefined : answered.splice(place, 1)[0];
}

/**
 * As `take`, but waits for an answer that is reported late. Firefox reports a download before the request that has brought it. An answer
 * that is older than a second may be of another request to the same URL, such as that of a document in a tab. So it counts only if no
 * other comes.
 *
 * A download that no page has begun, such as a saved link, has no such request.
 */
export function takeLate(url) {
    const key = withoutFragment(url);
    if (answered.some(request => request.key === key && Date.now() - request.at < MOST_WAIT))
        return Promise.resolve(take(url));
    return new Promise(resolve => {
        const caller = { key };
        caller.found = () => {
            clearTimeout(timer);
            waiting.delete(caller);
            resolve(take(url));
        };
        const timer = setTimeout(caller.found, MOST_WAIT);
        waiting.add(caller);
    });
}
