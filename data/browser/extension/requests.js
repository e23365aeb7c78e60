// SPDX-License-Identifier: Apache-2.0
// What the browser's own requests of pages and frames tell about the downloads that come of them: the method, the size, and the form.
// Requests are watched only while Todoku takes over downloads. The browser blocks nothing for it.
import { api } from './api.js';
import { formBody } from './rules.js';

const FILTER = { urls: ['http://*/*', 'https://*/*'], types: ['main_frame', 'sub_frame'] };
const MOST_REQUESTS = 50;
const MOST_AGE = 120_000; // milliseconds
const MOST_BODY = 1024 * 1024; // bytes

/** Requests that are not answered yet, by their number: {requestBody, type, headers}. */
const open = new Map();
/** Answered requests by the URL that answered, the oldest first: {isForm, size, form, at}. */
const answered = new Map();

/** A map keeps the order of insertion. */
function put(map, key, value) {
    map.delete(key);
    map.set(key, value);
    while (map.size > MOST_REQUESTS)
        map.delete(map.keys().next().value);
}

function onBeforeRequest(details) {
    if (details.method === 'POST' && details.requestBody)
        put(open, details.requestId, { requestBody: details.requestBody });
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
    const length = details.responseHeaders?.find(header => header.name.toLowerCase() === 'content-length')?.value;
    const form = request && formBody(request.requestBody, request.type, MOST_BODY);
    put(answered, details.url, {
        isForm: details.method !== 'GET',
        size: /^\d{1,15}$/.test(length ?? '') ? Number(length) : 0,
        form: form && { ...form, headers: request.headers ?? [] },
        at: Date.now(),
    });
}

const onErrorOccurred = details => open.delete(details.requestId);

/** Starts to watch requests. To be called when the background script starts: otherwise the browser does not start it for a request. */
export function watch() {
    api.webRequest.onHeadersReceived.addListener(onHeadersReceived, FILTER, ['responseHeaders']);
}

export function watchForms() {
    api.webRequest.onBeforeRequest.addListener(onBeforeRequest, FILTER, ['requestBody']);
    // Chromium tells the field Origin only to those who ask for it by this word, which Firefox does not know.
    const extra = Object.values(api.webRequest.OnSendHeadersOptions ?? {}).includes('extraHeaders') ? ['extraHeaders'] : [];
    api.webRequest.onSendHeaders.addListener(onSendHeaders, FILTER, ['requestHeaders', ...extra]);
    api.webRequest.onErrorOccurred.addListener(onErrorOccurred, FILTER);
}

export function unwatch() {
    api.webRequest.onHeadersReceived.removeListener(onHeadersReceived);
    answered.clear();
}

export function unwatchForms() {
    api.webRequest.onBeforeRequest.removeListener(onBeforeRequest);
    api.webRequest.onSendHeaders.removeListener(onSendHeaders);
    api.webRequest.onErrorOccurred.removeListener(onErrorOccurred);
    open.clear();
}

/** What is known of the request that `url` answered last; undefined: nothing. It is forgotten then. */
export function take(url) {
    const found = answered.get(url);
    answered.delete(url);
    for (const [key, request] of answered) {
        if (Date.now() - request.at > MOST_AGE)
            answered.delete(key);
    }
    return found && Date.now() - found.at <= MOST_AGE ? found : undefined;
}
