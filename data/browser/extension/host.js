// SPDX-License-Identifier: Apache-2.0
// Messages to the program todoku-browser, which the browser starts for each. docs/browser.md describes them.
import { api, isFirefox, text } from './api.js';
import { cookieFields } from './rules.js';

const PROGRAM = 'org.todoku.browser';

/** Why the program or the download service refused a message. `name` is the error's name; `message` is a sentence for people. */
export class HostError extends Error {
    constructor(name, message) {
        super(message);
        this.name = name;
    }
}

/** The answer to a message. */
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

/** The cookies that the browser would send with a request to `url`. Empty if the user does not let the extension see them. */
async function cookiesFor(url, storeId) {
    const details = { url };
    if (storeId)
        details.storeId = storeId;
    // With first-party isolation, Firefox refuses a call that does not mention it.
    if (isFirefox)
        details.firstPartyDomain = null;
    try {
        return (await api.cookies.getAll(details)).map(cookieFields);
    } catch {
        return [];
    }
}

/**
 * Queues a download, and returns its object path.
 *
 * `download` has the fields url, referrer, name (of the file), isPrivate, storeId (of the cookies), and form ({body, type, headers}), each
 * but the first if it is known.
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
