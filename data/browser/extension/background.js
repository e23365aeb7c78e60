// SPDX-License-Identifier: Apache-2.0
// The extension's events. The browser starts this script for an event, and ends it when nothing is left to do. So every listener is added
// at once; those that are not wanted are removed when the settings are known.
import { api, isFirefox, text } from './api.js';
import { HostError, queue } from './host.js';
import * as requests from './requests.js';
import { isFetchable, referrer } from './rules.js';
import { load } from './settings.js';
import { takeOver } from './takeover.js';

/** Milliseconds for which Chromium waits for us before it goes on with a download. It waits for at most 15 seconds by itself. */
const MOST_WAIT = 10_000;

const CONTEXTS = ['link', 'image', 'video', 'audio'];

let settings = begin();

function begin() {
    const loading = load();
    loading.then(listen);
    return loading;
}

/** Listens to what the settings need. */
function listen({ takeOver: isOn, forms }) {
    if (isOn)
        listenToDownloads();
    else
        forgetDownloads();
    if (isOn && forms)
        requests.watchForms();
    else
        requests.unwatchForms();
}

function listenToDownloads() {
    requests.watch();
    if (isFirefox)
        api.downloads.onCreated.addListener(onCreated);
    else
        api.downloads.onDeterminingFilename.addListener(onDeterminingFilename);
}

function forgetDownloads() {
    requests.unwatch();
    if (isFirefox)
        api.downloads.onCreated.removeListener(onCreated);
    else
        api.downloads.onDeterminingFilename.removeListener(onDeterminingFilename);
}

listenToDownloads();
requests.watchForms();

api.storage.onChanged.addListener((changes, area) => {
    if (area === 'local')
        settings = begin();
});

// MARK: Taking over

async function tryToTakeOver(item) {
    try {
        const isTaken = await takeOver(item, await settings);
        if (isTaken)
            await showFault('');
        return isTaken;
    } catch (error) {
        // The browser's own download goes on. A toast for each would be too much.
        await showFault(sentence(error));
        return false;
    }
}

function onCreated(item) {
    if (item.state === 'in_progress')
        tryToTakeOver(item);
}

/** Chromium asks for the name of the file, and does not show its own dialog before it has an answer. */
function onDeterminingFilename(item, suggest) {
    let isReleased = false;
    const release = () => {
        if (!isReleased)
            suggest();
        isReleased = true;
    };
    const timer = setTimeout(release, MOST_WAIT);
    tryToTakeOver(item).then(isTaken => {
        clearTimeout(timer);
        if (!isTaken)
            release();
    });
    return true; // the answer comes later
}

// MARK: Save with Todoku

api.runtime.onInstalled.addListener(async () => {
    await api.contextMenus.removeAll();
    for (const context of CONTEXTS) {
        api.contextMenus.create({
            id: context,
            title: text(`save_${context}`),
            contexts: [context],
            targetUrlPatterns: ['http://*/*', 'https://*/*'],
        });
    }
});

api.contextMenus.onClicked.addListener((info, tab) => {
    const url = info.menuItemId === 'link' ? info.linkUrl : info.srcUrl;
    save(url, info.frameUrl || info.pageUrl, tab);
});

/** Queues the file at `url`, which somebody has asked for on the page `page`. */
async function save(url, page, tab) {
    try {
        if (!isFetchable(url ?? ''))
            throw new HostError('UnsupportedScheme', text('errorScheme'));
        const download = { url, referrer: referrer(page, url), isPrivate: tab?.incognito ?? false, storeId: await storeOf(tab) };
        const path = await queue(download, await settings);
        await showFault('');
        return { download: path };
    } catch (error) {
        await showFault(sentence(error));
        await api.notifications.create({
            type: 'basic',
            iconUrl: api.runtime.getURL('icons/todoku-128.png'),
            title: text('notSaved'),
            message: sentence(error),
        });
        return { error: sentence(error) };
    }
}

async function storeOf(tab) {
    if (!tab || tab.cookieStoreId)
        return tab?.cookieStoreId; // Firefox
    return (await api.cookies.getAllCookieStores()).find(store => store.tabIds.includes(tab.id))?.id;
}

// The page of settings asks for a download, and tells what came of it.
api.runtime.onMessage.addListener((message, sender, answer) => {
    if (message?.type !== 'save' || !sender.url?.startsWith(api.runtime.getURL('')))
        return false;
    save(message.url, undefined, sender.tab).then(answer);
    return true; // the answer comes later
});

api.action.onClicked.addListener(() => api.runtime.openOptionsPage());

// MARK: What people see

const sentence = error => error instanceof HostError ? error.message : text('errorUnknown', error?.message ?? error);

/** Marks the button while the last download could not be handed over. Empty: it could. */
async function showFault(fault) {
    await api.action.setBadgeText({ text: fault ? '!' : '' });
    await api.action.setTitle({ title: fault ? `${text('name')}: ${fault}` : text('name') });
}
