// SPDX-License-Identifier: Apache-2.0
// Sends messages to the program todoku-browser. The browser starts the program for each message. docs/browser.md describes the messages.
import { api, isFirefox, text } from './api.js';
import { cookieFields } from './rules.js';

const PROGRAM = 'org.todoku.browser';

/** A refusal by the program or the download service. `name` is the error's name, and `message` is a sentence for people. */
export class HostError extends Error {
    constructor(name, message) {
        super(message);
        this.name = name;
    }
}

/** Sends a message and returns the answer. Throws a HostError. */
export async function ask(message) {
    let answer;
    try {
        answer = await api.runtime.sendNativeMessage(PROGRAM, message);
    } catch (error) {
        throw new HostError('HostMissing', text('errorHostMissing', error.message));
    }
    if (answer?.type === 'error') {
        const sentence = answer.name === 'ServiceUnavailable' ? text('errorServiceUnavailable', answer.message) : answer.message;
        throw new HostError(answer.name, sentence);
    }
    if (typeof answer?.type !== 'string')
        throw new HostError('InvalidAnswer', text('errorHostMissing', JSON.stringify(answer ?? null).slice(0, 80)));
    return answer;
}

/**
 * The browser's cookies for `url`. Empty if the user does not let the extension see them.
 *
 * `storeId` is the cookie store; undefined: the store of ordinary windows; null: no store is known, so that no cookies are sent.
 */
async function cookiesFor(url, storeId) {
    if (storeId === null)
        return [];
    const details = { url };
    if (storeId)
        details.storeId = storeId;
    // If the user has turned on first-party isolation, Firefox refuses a call without this field.
    if (isFirefox)
        details.firstPartyDomain = null;
    try {
        return (await api.cookies.getAll(details)).map(cookieFields);
    } catch {
        return [];
    }
}

/**
 * Queues a download, and returns its object path. Throws a HostError.
 *
 * `download` has the field url, and may have referrer, name (of the file), isPrivate, storeId (see cookiesFor) and form ({body, type,
 * headers}).
 */
export async function queue(download, settings) {
    const message = { type: 'download', url: download.url, 'user-agent': navigator.userAgent };
    if (download.referrer)
        message.referrer = download.referrer;
    if (download.name)
        message.filename = download.name;
    if (download.isPrivate)
        message.private = true;
    if (download.form) {
        message['post-data'] = download.form.body;
        message['post-type'] = download.form.type;
        message.headers = download.form.headers;
    }
    if (settings.cookies) {
        const cookies = await cookiesFor(download.url, download.storeId);
        if (cookies.length > 0)
            message.cookies = cookies;
    }
    return (await ask(message)).download;
}
