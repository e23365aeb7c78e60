// SPDX-License-Identifier: Apache-2.0
// Takes over a download of the browser. The browser's own goes on until Todoku's is on disk, so that a refusal loses nothing.
import { api, isFirefox } from './api.js';
import { ask, queue } from './host.js';
import * as requests from './requests.js';
import { baseName, judge, referrer } from './rules.js';

/** How often, and after how many milliseconds each, Firefox is asked for a size that it does not know yet. */
const LOOKS = 10;
const LOOK_DELAY = 200;

const wait = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

async function state(id) {
    const [item] = await api.downloads.search({ id });
    return item?.state;
}

/** Whether the extension may see the requests of pages. Otherwise a download might be the answer to a form, and it could not tell. */
const seesRequests = () => api.permissions.contains({ origins: ['http://*/*', 'https://*/*'] });

async function describe(item) {
    const url = item.finalUrl || item.url;
    const request = requests.take(url);
    return {
        url,
        size: Math.max(item.totalBytes ?? 0, request?.size ?? 0, 0),
        mediaType: item.mime,
        // In Firefox the name may already have a number, because the name without it is taken.
        name: isFirefox ? '' : baseName(item.filename ?? ''),
        // Firefox tells the whole URL of the page, also to another site.
        referrer: referrer(item.referrer, url),
        isExtension: Boolean(item.byExtensionId),
        danger: item.danger,
        isForm: request?.isForm ?? false,
        hasBody: request?.form !== undefined,
        form: request?.form,
        isPrivate: item.incognito,
        storeId: await storeOf(item),
    };
}

/** The cookie store of a download; undefined: the ordinary one. */
async function storeOf(item) {
    if (item.cookieStoreId)
        return item.cookieStoreId; // Firefox
    if (!item.incognito)
        return undefined;
    // Chromium has one store more while a private window is open.
    return (await api.cookies.getAllCookieStores()).map(store => store.id).find(id => id !== '0');
}

/** Whether Todoku is to have the download, also where the browser learns the size only now. */
async function isWanted(item, download, settings) {
    const named = { ...download, name: download.name || baseName(item.filename ?? '') };
    let verdict = judge(named, settings);
    for (let look = 0; isFirefox && verdict.reason === 'unknown-size' && look < LOOKS; look++) {
        await wait(LOOK_DELAY);
        const [now] = await api.downloads.search({ id: item.id });
        if (now?.state !== 'in_progress')
            return false;
        verdict = judge({ ...named, size: Math.max(now.totalBytes ?? 0, 0) }, settings);
    }
    return verdict.takes;
}

/**
 * Takes over the download if the settings say so.
 *
 * Returns true if Todoku has it now, and the browser's own is gone. Throws a HostError if Todoku refuses it; the browser's own goes on.
 */
export async function takeOver(item, settings) {
    if (!settings.takeOver || !(await seesRequests()))
        return false;
    const download = await describe(item);
    if (!(await isWanted(item, download, settings)))
        return false;
    const path = await queue(download, settings);
    // Meanwhile the browser may have the whole file, or somebody may have cancelled the download.
    const isRunning = (await state(item.id)) === 'in_progress';
    if (isRunning)
        await api.downloads.cancel(item.id).catch(() => {});
    if (!isRunning || (await state(item.id)) === 'complete') {
        await ask({ type: 'remove', download: path });
        return false;
    }
    await api.downloads.erase({ id: item.id });
    return true;
}
